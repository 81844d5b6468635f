// Package insidereport defines how the prober of a management cluster reports what it sees of a hosted API server: in an annotation of
// the HostedCluster, which Cluster Service reads with its status. The prober writes the annotation when the Report changes. To show that
// it is there, it also writes that of one cluster after another at the interval Beat: the latest report of a management cluster is its
// heartbeat. A report is bounded, and contains nothing but the result of health checks.
package insidereport

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Annotation is the annotation of a HostedCluster with its report.
const Annotation = "monitor.hcpmesh.io/inside"

const (
	// Beat is the longest time between two reports of a prober that has clusters.
	Beat = 20 * time.Second
	// maxWord is the maximum length of the name of a check and of an outcome, and maxDetail that of a detail, in bytes.
	maxWord, maxDetail = 32, 200
	// maxEncoded is the maximum size of an annotation that is decoded.
	maxEncoded = 2 << 10
)

// State is the state of an API server as the prober sees it.
type State string

// The states.
const (
	Available   State = "available"
	Unavailable State = "unavailable"
	// Unknown means that the prober cannot probe the API server, for the reason in Detail.
	Unknown State = "unknown"
)

// Report is what the prober sees of one API server.
type Report struct {
	State State `json:"state"`
	// Since is when the state began: for Unavailable the time of the first failure.
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
func (r Report) Same(other Report) bool {
	return r.State == other.State && r.Outcome == other.Outcome && r.Since.Equal(other.Since) && r.CertificateEnd.Equal(other.CertificateEnd)
}

func (r *Report) valid() bool {
	switch r.State {
	case Available, Unavailable, Unknown:
	default:
		return false
	}
	for _, at := range []time.Time{r.Since, r.Observed} {
		if at.Year() < 2000 || at.Year() > 3000 {
			return false
		}
	}
	unprintable := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(r.Check) <= maxWord && len(r.Outcome) <= maxWord && len(r.Detail) <= maxDetail &&
		!strings.ContainsFunc(r.Check+r.Outcome+r.Detail, unprintable)
}

// Encode returns the annotation's value. Times have the precision of milliseconds.
func (r Report) Encode() (string, error) {
	r.Since, r.CertificateEnd, r.Observed = r.Since.UTC().Truncate(time.Millisecond), r.CertificateEnd.UTC(), r.Observed.UTC().Truncate(time.Millisecond)
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode the report of an API server: %w", err)
	}
	return string(text), nil
}

// Decode reads the annotation's value. The value comes from outside: Decode returns nil for one that is missing or invalid.
func Decode(text string) *Report {
	if text == "" || len(text) > maxEncoded {
		return nil
	}
	var report Report
	if json.Unmarshal([]byte(text), &report) != nil || !report.valid() {
		return nil
	}
	return &report
}
