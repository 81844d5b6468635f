package alerts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// Watchdog is the name of the alert that always fires. Without it nobody knows whether alerts are evaluated.
const Watchdog = "Watchdog"

// maxFiring is the number of firing alerts that Firing returns.
const maxFiring = 1000

// The queries for firing alerts, and for when their conditions began to hold: the value is a Unix time.
const (
	firingQuery = `ALERTS{alertstate="firing"}`
	sinceQuery  = `ALERTS_FOR_STATE`
)

// Firing returns the alerts that fire at a time, those that page first, without the Watchdog. It returns an error if Prometheus does not answer, or
// does not evaluate alerts: then it is unknown which fire. more is true if more than 1000 fire.
func (h *History) Firing(ctx context.Context, now time.Time) (firing []adminv1.Alert, more bool, err error) {
	current, err := h.vector(ctx, firingQuery, now, maxFiring+2) // the Watchdog, and one that shows that there are more
	if err != nil {
		return nil, false, err
	}
	began, err := h.vector(ctx, sinceQuery, now, 0)
	if err != nil {
		return nil, false, err
	}
	since := map[model.Fingerprint]time.Time{}
	for _, sample := range began {
		since[identity(sample.Metric)] = time.Unix(int64(sample.Value), 0).UTC()
	}
	evaluated := false
	firing = []adminv1.Alert{}
	for _, sample := range current {
		if sample.Metric[model.AlertNameLabel] == Watchdog {
			evaluated = true
			continue
		}
		firing = append(firing, alertOf(sample.Metric, since))
	}
	if !evaluated && len(current) < maxFiring+2 {
		return nil, false, apierror.New(apierror.Unavailable, "Prometheus answered, but the alert %s, which always fires, does not: alerts are not evaluated. Which alerts should fire is unknown.", Watchdog)
	}
	slices.SortStableFunc(firing, func(a, b adminv1.Alert) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), compareSince(a.Since, b.Since), cmp.Compare(a.Name, b.Name))
	})
	if len(firing) > maxFiring {
		return firing[:maxFiring], true, nil
	}
	return firing, false, nil
}

// vector returns the result of a query at a time; a limit of 0 means none.
func (h *History) vector(ctx context.Context, query string, now time.Time, limit uint64) (model.Vector, error) {
	var options []promv1.Option
	if limit > 0 {
		options = append(options, promv1.WithLimit(limit))
	}
	value, _, err := h.api.Query(ctx, query, now, options...)
	if err != nil {
		return nil, unavailable(err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, unavailable(fmt.Errorf("the answer is a %s, not a vector", value.Type()))
	}
	return vector, nil
}

// identity returns the identity of an alert in both series, which differ in the name and in the state.
func identity(metric model.Metric) model.Fingerprint {
	labels := metric.Clone()
	delete(labels, model.MetricNameLabel)
	delete(labels, "alertstate")
	return labels.Fingerprint()
}

func alertOf(metric model.Metric, since map[model.Fingerprint]time.Time) adminv1.Alert {
	alert := adminv1.Alert{Name: string(metric[model.AlertNameLabel]), Severity: string(metric["severity"]), ProvisionShard: string(metric["shard"]), ClusterUID: string(metric["cluster_uid"]), Labels: map[string]string{}}
	for name, value := range metric {
		if name != model.MetricNameLabel && name != "alertstate" && name != model.AlertNameLabel {
			alert.Labels[string(name)] = string(value)
		}
	}
	if began, known := since[identity(metric)]; known {
		alert.Since = &began
	}
	return alert
}

// rank returns the position of a severity in lists.
func rank(severity string) int {
	if i := slices.Index([]string{"page", "ticket", "planned"}, severity); i >= 0 {
		return i
	}
	return 3
}

// compareSince sorts the oldest first, and unknown times last.
func compareSince(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}
