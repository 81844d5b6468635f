package hostedreport

import (
	"strings"
	"time"
)

// InsideAnnotation is the annotation of a HostedCluster with its InsideReport.
const InsideAnnotation = "monitor.hcpmesh.io/inside"

const (
	// InsideBeat is the longest time between two reports of a prober that has clusters: it also writes the report of one cluster after another
	// when nothing changes. The latest report of a management cluster is its heartbeat.
	InsideBeat = 20 * time.Second
	// maxInsideWord is the maximum length of the name of a check and of an outcome, and maxInsideDetail that of a detail, in bytes.
	maxInsideWord, maxInsideDetail = 32, 200
	// maxEncodedInside is the maximum size of an annotation that is decoded.
	maxEncodedInside = 2 << 10
)

// InsideState is the state of an API server as the prober sees it.
type InsideState string

// The states.
const (
	InsideAvailable   InsideState = "available"
	InsideUnavailable InsideState = "unavailable"
	// InsideUnknown means that the prober cannot probe the API server, for the reason in Detail.
	InsideUnknown InsideState = "unknown"
)

// InsideReport is what the prober of a management cluster sees of one API server. It contains nothing but the result of health checks.
type InsideReport struct {
	State InsideState `json:"state"`
	// Since is when the state began: for InsideUnavailable the time of the first failure.
	Since time.Time `json:"since"`
	// Check, Outcome and Detail describe the last failure of an API server that is unavailable: the health check, the class of its result,
	// and an explanation for people.
	Check   string `json:"check,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Detail  string `json:"detail,omitempty"`
	// CertificateEnd is the end of validity of the serving certificate, or zero if none was seen.
	CertificateEnd time.Time `json:"certificateEnd,omitzero"`
	// Observed is when the prober wrote the report.
	Observed time.Time `json:"observed"`
}

// Same reports whether two reports state the same, so that the second one need not be written. The explanations of two failures with the
// same outcome, which can contain numbers of ports, do not differ.
func (r InsideReport) Same(other InsideReport) bool {
	return r.State == other.State && r.Outcome == other.Outcome && r.Since.Equal(other.Since) && r.CertificateEnd.Equal(other.CertificateEnd)
}

func (r *InsideReport) valid() bool {
	switch r.State {
	case InsideAvailable, InsideUnavailable, InsideUnknown:
	default:
		return false
	}
	for _, at := range []time.Time{r.Since, r.Observed} {
		if at.Year() < 2000 || at.Year() > 3000 {
			return false
		}
	}
	unprintable := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(r.Check) <= maxInsideWord && len(r.Outcome) <= maxInsideWord && len(r.Detail) <= maxInsideDetail &&
		!strings.ContainsFunc(r.Check+r.Outcome+r.Detail, unprintable)
}

// Encode returns the annotation's value. Times have the precision of milliseconds.
func (r InsideReport) Encode() (string, error) {
	r.Since, r.CertificateEnd, r.Observed = r.Since.UTC().Truncate(time.Millisecond), r.CertificateEnd.UTC(), r.Observed.UTC().Truncate(time.Millisecond)
	return encode("the report of an API server", r)
}

// DecodeInside reads the annotation's value. The value comes from outside: DecodeInside returns nil for one that is missing or invalid.
func DecodeInside(text string) *InsideReport {
	var report InsideReport
	if !decode(text, maxEncodedInside, &report) || !report.valid() {
		return nil
	}
	return &report
}
