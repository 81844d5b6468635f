package hostedreport

import (
	"strings"
	"time"
)

// EgressAnnotation is the annotation of a HostedCluster with its EgressReport.
const EgressAnnotation = "egress.hcpmesh.io/failures"

const (
	// maxEgressFailures is the maximum number of targets in a report. The latest ones are kept.
	maxEgressFailures = 8
	// maxTarget is the length of the longest DNS name with a port.
	maxTarget = 260
	// maxEncodedEgress is the maximum size of an annotation that is decoded.
	maxEncodedEgress = 16 << 10
)

// EgressOutcome is the reason why a connection was not made.
type EgressOutcome string

// The outcomes.
const (
	// EgressInvalid, EgressPort and EgressAddress are refusals of the policy: the target is neither a name nor an address, its port is not permitted, or
	// it has no public address.
	EgressInvalid EgressOutcome = "invalid"
	EgressPort    EgressOutcome = "port"
	EgressAddress EgressOutcome = "address"
	// EgressUnresolved and EgressUnreachable are failures: the name does not resolve, or no address accepts the connection.
	EgressUnresolved  EgressOutcome = "unresolved"
	EgressUnreachable EgressOutcome = "unreachable"
)

// Refused reports whether the policy does not permit the target.
func (o EgressOutcome) Refused() bool {
	return o == EgressInvalid || o == EgressPort || o == EgressAddress
}

func (o EgressOutcome) valid() bool {
	return o.Refused() || o == EgressUnresolved || o == EgressUnreachable
}

// EgressFailure describes the failures of one target.
type EgressFailure struct {
	// Target is host:port, in lower case.
	Target  string        `json:"target"`
	Outcome EgressOutcome `json:"outcome"`
	// First is the time of the first failure with this outcome. Last is the time of the latest one, with the precision of Again.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

func (f *EgressFailure) valid() bool {
	printable := !strings.ContainsFunc(f.Target, func(r rune) bool { return r <= ' ' || r > '~' })
	return f.Target != "" && len(f.Target) <= maxTarget && printable && f.Outcome.valid() &&
		f.First.Year() > 2000 && f.Last.Year() < 3000 && !f.Last.Before(f.First)
}

// EgressReport has the failures of one control plane by target: connections that the egress proxy did not make for it. Cluster Service compares
// the targets with the URLs of token issuers. The report contains the targets that the control plane asked for, and never an address to which a
// name resolved.
type EgressReport map[string]EgressFailure

// Note adds a failure at a time. It returns true if the report must be written again: for a new target, another outcome, or after the
// time Again. An invalid failure is ignored.
func (r EgressReport) Note(target string, outcome EgressOutcome, now time.Time) (changed bool) {
	return r.add(EgressFailure{Target: strings.ToLower(target), Outcome: outcome, First: now, Last: now})
}

func (r EgressReport) add(f EgressFailure) (changed bool) {
	f.First, f.Last = f.First.UTC().Truncate(time.Second), f.Last.UTC().Truncate(time.Second)
	if !f.valid() {
		return false
	}
	known, found := r[f.Target]
	if found && known.Outcome == f.Outcome {
		if f.Last.Sub(known.Last) < Again {
			return false
		}
		f.First = known.First
	}
	r[f.Target] = f
	return true
}

// Clear removes a target to which a connection was made. It returns true if the report must be written again.
func (r EgressReport) Clear(target string) (changed bool) {
	target = strings.ToLower(target)
	_, found := r[target]
	delete(r, target)
	return found
}

// Forget removes failures that are older than Kept, and the oldest ones beyond the maximum number.
func (r EgressReport) Forget(now time.Time) {
	for i, f := range r.Failures() {
		if i >= maxEgressFailures || now.Sub(f.Last) > Kept {
			delete(r, f.Target)
		}
	}
}

// Failures returns the failures of a report, latest first.
func (r EgressReport) Failures() []EgressFailure {
	return latestFirst(r, func(f EgressFailure) time.Time { return f.Last })
}

// Encode returns the annotation's value.
func (r EgressReport) Encode() (string, error) {
	return encode("the failures of connections", r.Failures())
}

// DecodeEgress reads the annotation's value. The value comes from outside, so invalid failures are ignored.
func DecodeEgress(text string) EgressReport {
	report := EgressReport{}
	var failures []EgressFailure
	if !decode(text, maxEncodedEgress, &failures) {
		return report
	}
	for _, f := range failures[:min(len(failures), maxEgressFailures)] {
		report.add(f)
	}
	return report
}
