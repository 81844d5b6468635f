package logforwarder

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// streamKey identifies a stream. Setting is the folder of the setting. The key of reading settings has no category.
type streamKey struct {
	controlPlane string
	setting      string
	category     customerlog.Category
}

// delivery is the state of a stream.
type delivery struct {
	// seen means that the stream has delivered or failed since it was added.
	seen bool
	// since is when the oldest line that is not delivered was read; zero if nothing waits.
	since time.Time
	// fault and reason describe the last failure since then. Without one, the fault is the service's and the reason empty.
	fault  hostedreport.LogFault
	reason string
}

// selection is a diagnostic setting that selects logs.
type selection struct {
	setting, account string
	// problem is the reason why the setting cannot be used, since when it has been known; empty if it can.
	problem string
	since   time.Time
}

// deliveries has the state of all streams. It is the collector of the ages of the oldest lines that are not delivered, and it computes the reports
// about control planes.
type deliveries struct {
	now         func() time.Time
	description *prometheus.Desc
	// patience is the age of the oldest line at which a failure is reported. changed is called with the lock when the report about a control plane
	// may change after a time.
	patience time.Duration
	changed  func(controlPlane string, after time.Duration)

	mu      sync.Mutex
	streams map[streamKey]*delivery
	// selections has the settings that select logs, by control plane and folder. A control plane whose settings have not been read is not in it.
	selections map[string]map[string]selection
}

func newDeliveries(now func() time.Time, patience time.Duration, changed func(string, time.Duration)) *deliveries {
	return &deliveries{now: now, patience: patience, changed: changed, streams: map[streamKey]*delivery{}, selections: map[string]map[string]selection{},
		description: prometheus.NewDesc("customer_logs_waiting_seconds",
			"Time for which the oldest batch, or the reading of diagnostic settings, waits, by whose fault it is; 0 if nothing waits.", []string{"fault"}, nil)}
}

// of returns the state of a stream, which it adds if it is new. The caller holds the lock.
func (d *deliveries) of(key streamKey) *delivery {
	state := d.streams[key]
	if state == nil {
		state = &delivery{}
		d.streams[key] = state
	}
	return state
}

// add adds a stream that has neither delivered nor failed yet.
func (d *deliveries) add(key streamKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(key)
}

// remove removes a stream.
func (d *deliveries) remove(key streamKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, key)
}

// begin starts the time of a stream that has read a line, unless another one waits already.
func (d *deliveries) begin(key streamKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(key).begin(d.now())
}

func (s *delivery) begin(now time.Time) {
	if s.since.IsZero() {
		s.since, s.fault = now, hostedreport.LogFaultService
	}
}

// left returns the time until a failure since a time is reported.
func (d *deliveries) left(since time.Time) time.Duration { return since.Add(d.patience).Sub(d.now()) }

// failed sets why a stream waits.
func (d *deliveries) failed(key streamKey, fault hostedreport.LogFault, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.of(key)
	state.begin(d.now())
	if state.reason != reason || state.fault != fault {
		d.changed(key.controlPlane, max(0, d.left(state.since)))
	}
	state.seen, state.fault, state.reason = true, fault, reason
}

// delivered ends the time of a stream.
func (d *deliveries) delivered(key streamKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.of(key)
	if !state.seen || state.reason != "" {
		d.changed(key.controlPlane, 0)
	}
	*state = delivery{seen: true}
}

// selected stores the settings of a control plane that select logs. Their streams have been added.
func (d *deliveries) selected(controlPlane string, settings map[string]selection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for folder, next := range settings {
		if before := d.selections[controlPlane][folder]; next.problem != "" && before.problem == next.problem {
			next.since = before.since
		} else if next.problem != "" {
			next.since = d.now()
		}
		settings[folder] = next
	}
	d.selections[controlPlane] = settings
	d.changed(controlPlane, 0)
}

// forget forgets the settings of a control plane.
func (d *deliveries) forget(controlPlane string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.selections, controlPlane)
}

// report returns the next report about a control plane; nil for none. What is not known since the start remains as it was reported.
func (d *deliveries) report(controlPlane string, reported *hostedreport.LogReport) *hostedreport.LogReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	settings, known := d.selections[controlPlane]
	if !known {
		return reported
	}
	if len(settings) == 0 {
		return nil
	}
	report := &hostedreport.LogReport{Settings: len(settings)}
	for folder, setting := range settings {
		var before *hostedreport.LogFailure
		if reported != nil {
			same := func(f hostedreport.LogFailure) bool {
				return f.Setting == hostedreport.LogSettingName(setting.setting) && f.Account == setting.account
			}
			if i := slices.IndexFunc(reported.Failures, same); i >= 0 {
				before = &reported.Failures[i]
			}
		}
		if failure := d.failure(controlPlane, folder, setting, before); failure != nil {
			report.Failures = append(report.Failures, *failure)
		}
	}
	slices.SortFunc(report.Failures, func(a, b hostedreport.LogFailure) int { return strings.Compare(a.Setting, b.Setting) })
	report.Failures = report.Failures[:min(len(report.Failures), hostedreport.MaxLogFailures)]
	return report
}

// failure returns why the logs of a setting do not arrive; nil if they do. The caller holds the lock.
func (d *deliveries) failure(controlPlane, folder string, setting selection, before *hostedreport.LogFailure) *hostedreport.LogFailure {
	next := hostedreport.LogFailure{Setting: hostedreport.LogSettingName(setting.setting), Account: setting.account}
	if setting.problem != "" {
		next.Fault, next.Reason, next.Since = hostedreport.LogFaultCustomer, setting.problem, setting.since
		if before != nil && before.Reason == next.Reason {
			next.Since = before.Since
		}
		return &next
	}
	unknown := false
	for key, state := range d.streams {
		switch {
		case key.controlPlane != controlPlane || key.setting != folder:
		case !state.seen:
			unknown = true
		case state.reason != "" && (next.Since.IsZero() || state.since.Before(next.Since)):
			next.Fault, next.Reason, next.Since = state.fault, hostedreport.LogReason(state.reason), state.since
		}
	}
	switch {
	case next.Since.IsZero() && unknown:
		return before
	case next.Since.IsZero():
		return nil
	case before != nil:
		next.Since = before.Since // the failure began before this process started
		return &next
	case d.left(next.Since) > 0:
		// The time of another setting of the control plane may have caused this report: a queue keeps only the earliest time.
		d.changed(controlPlane, d.left(next.Since))
		return nil
	}
	return &next
}

// Describe implements prometheus.Collector.
func (d *deliveries) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- d.description }

// Collect implements prometheus.Collector.
func (d *deliveries) Collect(metrics chan<- prometheus.Metric) {
	oldest := map[hostedreport.LogFault]float64{hostedreport.LogFaultCustomer: 0, hostedreport.LogFaultAzure: 0, hostedreport.LogFaultService: 0}
	d.mu.Lock()
	now := d.now()
	for _, s := range d.streams {
		if !s.since.IsZero() {
			oldest[s.fault] = max(oldest[s.fault], now.Sub(s.since).Seconds())
		}
	}
	d.mu.Unlock()
	for fault, seconds := range oldest {
		metrics <- prometheus.MustNewConstMetric(d.description, prometheus.GaugeValue, seconds, string(fault))
	}
}
