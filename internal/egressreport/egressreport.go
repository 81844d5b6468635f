// Package egressreport defines how a management cluster reports connections that the egress proxy did not make for a control plane: in
// an annotation of the HostedCluster, which Cluster Service reads with its status. The proxy maintains a Report and writes the
// annotation. Cluster Service compares the targets with the URLs of token issuers. A report is bounded. It contains the targets that
// the control plane asked for, and never an address to which a name resolved.
package egressreport

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Annotation is the annotation of a HostedCluster with its report.
const Annotation = "egress.hcpmesh.io/failures"

const (
	// Again is the time after which another failure of a reported target is reported again.
	Again = time.Hour
	// Kept is the time for which a target stays in the report after its last known failure.
	Kept = 48 * time.Hour
	// maxFailures is the maximum number of targets in a report. The latest ones are kept.
	maxFailures = 8
	// maxTarget is the length of the longest DNS name with a port.
	maxTarget = 260
	// maxEncoded is the maximum size of an annotation that is decoded.
	maxEncoded = 16 << 10
)

// Outcome is the reason why a connection was not made.
type Outcome string

// The outcomes.
const (
	// Invalid, Port and Address are refusals of the policy: the target is neither a name nor an address, its port is not permitted, or
	// it has no public address.
	Invalid Outcome = "invalid"
	Port    Outcome = "port"
	Address Outcome = "address"
	// Unresolved and Unreachable are failures: the name does not resolve, or no address accepts the connection.
	Unresolved  Outcome = "unresolved"
	Unreachable Outcome = "unreachable"
)

// Refused reports whether the policy does not permit the target.
func (o Outcome) Refused() bool { return o == Invalid || o == Port || o == Address }

func (o Outcome) valid() bool { return o.Refused() || o == Unresolved || o == Unreachable }

// Failure describes the failures of one target.
type Failure struct {
	// Target is host:port, in lower case.
	Target  string  `json:"target"`
	Outcome Outcome `json:"outcome"`
	// First is the time of the first failure with this outcome. Last is the time of the latest one, with the precision of Again.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

func (f *Failure) valid() bool {
	printable := !strings.ContainsFunc(f.Target, func(r rune) bool { return r <= ' ' || r > '~' })
	return f.Target != "" && len(f.Target) <= maxTarget && printable && f.Outcome.valid() &&
		f.First.Year() > 2000 && f.Last.Year() < 3000 && !f.Last.Before(f.First)
}

// Report has the failures of one control plane by target.
type Report map[string]Failure

// Note adds a failure at a time. It returns true if the report must be written again: for a new target, another outcome, or after the
// time Again. An invalid failure is ignored.
func (r Report) Note(target string, outcome Outcome, now time.Time) (changed bool) {
	return r.add(Failure{Target: strings.ToLower(target), Outcome: outcome, First: now, Last: now})
}

func (r Report) add(f Failure) (changed bool) {
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
func (r Report) Clear(target string) (changed bool) {
	target = strings.ToLower(target)
	_, found := r[target]
	delete(r, target)
	return found
}

// Forget removes failures that are older than Kept, and the oldest ones beyond the maximum number.
func (r Report) Forget(now time.Time) {
	for i, f := range r.Failures() {
		if i >= maxFailures || now.Sub(f.Last) > Kept {
			delete(r, f.Target)
		}
	}
}

// Failures returns the failures of a report, latest first.
func (r Report) Failures() []Failure {
	failures := make([]Failure, 0, len(r))
	for _, f := range r {
		failures = append(failures, f)
	}
	slices.SortFunc(failures, func(a, b Failure) int {
		if c := b.Last.Compare(a.Last); c != 0 {
			return c
		}
		return strings.Compare(a.Target, b.Target)
	})
	return failures
}

// Encode returns the annotation's value.
func (r Report) Encode() (string, error) {
	text, err := json.Marshal(r.Failures())
	if err != nil {
		return "", fmt.Errorf("encode the failures of connections: %w", err)
	}
	return string(text), nil
}

// Decode reads the annotation's value. The value comes from outside, so invalid failures are ignored.
func Decode(text string) Report {
	report := Report{}
	if text == "" || len(text) > maxEncoded {
		return report
	}
	var failures []Failure
	if json.Unmarshal([]byte(text), &failures) != nil {
		return report
	}
	for _, f := range failures[:min(len(failures), maxFailures)] {
		report.add(f)
	}
	return report
}
