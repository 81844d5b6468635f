package judge

import (
	"time"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// The numbers of equal results that change the state of a vantage, so that one lost packet is no outage and an API that
// alternates is not reported as available.
const (
	// FailuresToBad is the number of consecutive failures after which the API is unavailable, if dwell lies between the first
	// and the last one: within dwell, a Detector detects that all clusters fail. SuccessesToGood is the number of
	// successes after which the API is available again.
	FailuresToBad, SuccessesToGood = 2, 3
	dwell                          = 5 * time.Second
	// slowToConcern is the number of consecutive slow successes that are a concern; slowAfter is when a success is slow.
	slowToConcern = 3
	slowAfter     = time.Second
)

// History holds the results of a cluster's probes, in constant space. The zero value has none.
type History struct {
	outside, inside series
}

// series are the results of one vantage.
type series struct {
	last, failure probe.Result
	// seen is the time of the last result that reports something about the cluster, answered that of the last success.
	seen, answered      time.Time
	failures, successes int
	bad                 bool
	badSince            time.Time
	slow                int
	slowSince           time.Time
	certificateEnd      time.Time
}

// Add adds the result of a probe. Results of one vantage must be added in order of time.
func (h *History) Add(result probe.Result) {
	s := h.of(result.Vantage)
	s.last = result
	if !result.CertificateEnd.IsZero() {
		s.certificateEnd = result.CertificateEnd
	}
	switch result.Outcome {
	case probe.Local:
	case probe.OK:
		s.succeed(&result)
	default:
		s.fail(&result)
	}
}

func (s *series) succeed(result *probe.Result) {
	s.failures, s.seen, s.answered = 0, result.Time, result.Time
	if s.successes++; s.successes >= SuccessesToGood {
		s.bad = false
	}
	if result.Duration < slowAfter {
		s.slow = 0
		return
	}
	if s.slow++; s.slow == 1 {
		s.slowSince = result.Time
	}
}

func (s *series) fail(result *probe.Result) {
	s.failure, s.seen, s.successes, s.slow = *result, result.Time, 0, 0
	if s.failures++; s.failures == 1 && !s.bad {
		s.badSince = result.Time
	}
	if s.failures >= FailuresToBad && result.Time.Sub(s.badSince) >= dwell {
		s.bad = true
	}
}

func (h *History) of(vantage probe.Vantage) *series {
	if vantage == probe.Inside {
		return &h.inside
	}
	return &h.outside
}

// Failing reports whether the last probe from a vantage failed, or the API is unavailable. The prober then repeats the probe
// soon.
func (h *History) Failing(vantage probe.Vantage) bool {
	s := h.of(vantage)
	return s.bad || s.failures > 0
}

// UnavailableSince returns since when the API is unavailable from a vantage, or the zero time.
func (h *History) UnavailableSince(vantage probe.Vantage) time.Time {
	if s := h.of(vantage); s.bad {
		return s.badSince
	}
	return time.Time{}
}

// Restore continues with what another replica saw: the API is unavailable from a vantage since a time. It has no effect if a probe
// of this replica has succeeded.
func (h *History) Restore(vantage probe.Vantage, since time.Time) {
	if s := h.of(vantage); s.answered.IsZero() {
		s.bad, s.badSince = true, since
	}
}

// SetInside replaces what is known of the inside vantage by the report of the management cluster's prober. seen is the time of the latest
// report of that prober about any cluster: until then, a cluster without a new report is unchanged.
func (h *History) SetInside(report *hostedreport.InsideReport, seen time.Time) {
	s := series{seen: seen, certificateEnd: report.CertificateEnd}
	switch report.State {
	case hostedreport.InsideAvailable:
		s.answered = seen
	case hostedreport.InsideUnavailable:
		s.bad, s.badSince = true, report.Since
		s.failure = probe.Result{Vantage: probe.Inside, Check: probe.Check(report.Check), Time: seen, Outcome: probe.Outcome(report.Outcome), Detail: report.Detail}
		s.last = s.failure
	case hostedreport.InsideUnknown:
		s.last = probe.Result{Vantage: probe.Inside, Time: seen, Outcome: probe.Local, Detail: report.Detail}
	default:
		s = series{}
	}
	h.inside = s
}

// Reported reports whether something is known of the inside vantage, however old it is.
func (h *History) Reported() bool { return !h.inside.seen.IsZero() || !h.inside.last.Time.IsZero() }

// Report returns what the prober of a management cluster reports about a cluster that it probes. It returns an unknown state until enough
// probes were made.
func (h *History) Report(now time.Time) hostedreport.InsideReport {
	s := h.state(now, probe.Inside)
	report := hostedreport.InsideReport{State: hostedreport.InsideAvailable, CertificateEnd: h.inside.certificateEnd}
	switch {
	case s.known != "":
		report.State, report.Detail = hostedreport.InsideUnknown, s.detail
	case s.bad:
		report.State, report.Since = hostedreport.InsideUnavailable, s.since
		report.Check, report.Outcome, report.Detail = string(s.failure.Check), string(s.failure.Outcome), s.failure.Detail
	}
	return report
}

// CertificateEnd returns the end of the serving certificate as last seen, from outside if possible. It is zero if none was
// seen.
func (h *History) CertificateEnd() time.Time {
	if !h.outside.certificateEnd.IsZero() {
		return h.outside.certificateEnd
	}
	return h.inside.certificateEnd
}

// state is the state of one vantage.
type state struct {
	// known is why the state is unknown, with a detail, or empty.
	known         Reason
	detail        string
	bad, slow     bool
	since         time.Time
	slowSince     time.Time
	last, failure probe.Result
	// seen is the time of the last result, and answered that of the last success.
	seen, answered time.Time
}

func (h *History) state(now time.Time, vantage probe.Vantage) state {
	s := h.of(vantage)
	result := state{bad: s.bad, slow: s.slow >= slowToConcern, since: s.badSince, slowSince: s.slowSince, last: s.last, failure: s.failure, seen: s.seen, answered: s.answered}
	switch {
	case s.last.Outcome == probe.Local && now.Sub(s.last.Time) <= StaleAfter:
		result.known, result.detail = ProbeFailed, s.last.Detail
	case s.bad && now.Sub(s.seen) > StaleAfter, !s.bad && now.Sub(s.answered) > StaleAfter:
		result.known = NotProbed
	}
	return result
}

// silence returns since when a vantage that reported before does not report, for people; empty if it reports or never did.
func (s *state) silence() string {
	if s.known != NotProbed || s.seen.IsZero() {
		return ""
	}
	return "the prober of the management cluster has not reported since " + s.seen.UTC().Format(time.RFC3339)
}

// evidence returns the last failure for people.
func (s *state) evidence() string {
	text := string(s.failure.Vantage) + " " + string(s.failure.Check) + ": " + string(s.failure.Outcome)
	if s.failure.Detail != "" {
		text += " (" + s.failure.Detail + ")"
	}
	return text
}
