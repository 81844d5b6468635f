// Package judge turns facts about a hosted cluster into a Verdict: whether its API is available, and its concerns. A concern
// states what is wrong, since when, whose fault it is and what helps.
//
// The package is pure. A History keeps the results of a cluster's probes in constant space, and Judge decides from it, from
// what Cluster Service reports and from what monitor can see, which a Detector computes from the probes of all clusters.
// Judge never guesses: if monitor could not see the cluster, the verdict is Unknown with the reason.
package judge

import (
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// The limits of a verdict.
const (
	// Grace is how long after the cluster became ready its failures do not count.
	Grace = 15 * time.Minute
	// StaleAfter is the age of the last probe from which on the state of the API is unknown.
	StaleAfter = 90 * time.Second
	// CertificateNotice is how long before its end a serving certificate is a concern.
	CertificateNotice = 7 * 24 * time.Hour
	// partDelay is longer than a changed condition of a part, and a changed report of the prober inside, needs from the management cluster
	// to monitor. Before, a part that is reported as available may have failed.
	partDelay = time.Minute
)

// API is the state of a cluster's API.
type API string

// The states of an API.
const (
	Available   API = "available"
	Unavailable API = "unavailable"
	Unknown     API = "unknown"
)

// Reason is why the state of an API is unknown.
type Reason string

// The reasons.
const (
	// NotReady means that the cluster is not ready yet, or is being deleted.
	NotReady Reason = "not_ready"
	// NoEndpoint means that Cluster Service does not know the URL of the API or the authority of its certificate.
	NoEndpoint Reason = "no_endpoint"
	// Blocked means that the customer does not allow probes from outside: the API is private or has authorized CIDRs. No prober of the
	// management cluster has reported it either.
	Blocked Reason = "blocked"
	// InsideSilent means that the customer does not allow probes from outside, and that the prober of the management cluster has not
	// reported within StaleAfter.
	InsideSilent Reason = "inside_silent"
	// NotProbed means that there is no probe yet, or none within StaleAfter.
	NotProbed Reason = "not_probed"
	// ProbeFailed means that the last probe failed in monitor's own process or machine.
	ProbeFailed Reason = "probe_failed"
	// Blind means that monitor cannot see any cluster.
	Blind Reason = "blind"
)

// Period is a time in which failures are expected and do not count against the service level.
type Period string

// The periods. The empty value means that failures count.
const (
	// Creation is the time of Grace.
	Creation Period = "creation"
	// Upgrade is the time in which the release of the control plane changes.
	Upgrade Period = "upgrade"
)

// Cluster is what Cluster Service reports about a cluster, as far as a verdict depends on it.
type Cluster struct {
	Shard string
	// ReadySince is when the cluster became ready for the first time. It is zero if it did not, or is being deleted.
	ReadySince time.Time
	// Upgrading means that the release of the control plane changes.
	Upgrading bool
	// KeyInvalidSince is since when the customer's key for the encryption of etcd cannot be used, or the zero time. KeyMessage
	// is the message of the condition.
	KeyInvalidSince time.Time
	KeyMessage      string
	// APIServer and Etcd are the parts of the control plane, as HyperShift sees them inside the management cluster.
	APIServer, Etcd Part
	// Nodes, DataPlane, Degraded and Operators are about the guest: its nodes, the connection of the control plane to them, whether
	// HyperShift reports the cluster as degraded, and whether all cluster operators succeed.
	Nodes     Nodes
	DataPlane Part
	Degraded  Condition
	Operators Condition
	// Unprobed is why monitor does not probe the API from outside, or empty.
	Unprobed Reason
}

// Part is what HyperShift reports about a part of a control plane. The zero value means that it reports nothing.
type Part struct {
	// Status is True, False or Unknown, and Since when it changed last.
	Status string
	Since  time.Time
}

// The statuses of a Part that permit a statement.
const (
	partAvailable   = "True"
	partUnavailable = "False"
)

// failed reports whether a part has not been available for a time. Short failures are part of restarts.
func (p *Part) failed(now time.Time, delay time.Duration) bool {
	return p.Status == partUnavailable && now.Sub(p.Since) >= delay
}

// Verdict is the state of one cluster at a time.
type Verdict struct {
	API API
	// Reason is set if the API's state is Unknown. Detail explains the reason for people; it may be empty.
	Reason Reason
	Detail string
	// During is the period in which the verdict was made.
	During Period
	// Concerns are in order of importance. A verdict of Unknown can have concerns that do not depend on probes.
	Concerns []Concern
}

// Counts reports whether the verdict counts for the service level: whether the state is known and no failure is expected.
func (v *Verdict) Counts() bool { return v.API != Unknown && v.During == "" }

// Judge decides about a cluster. view is what monitor can see at the time.
func Judge(now time.Time, cluster *Cluster, history *History, view *View) Verdict {
	v := Verdict{During: period(now, cluster)}
	if !cluster.KeyInvalidSince.IsZero() {
		v.add(KeyUnusable, cluster.KeyInvalidSince, cluster.KeyMessage)
	}
	outside, inside := history.state(now, probe.Outside), history.state(now, probe.Inside)
	switch unprobed := cluster.Unprobed; {
	case cluster.ReadySince.IsZero():
		v.unknown(NotReady, "")
	case view.Blind:
		v.unknown(Blind, view.Reason)
	case unprobed == Blocked && history.Reported():
		outside.known = Blocked
		v.judgeInside(now, cluster, &outside, &inside, view)
	case unprobed != "":
		v.unknown(unprobed, "")
	case outside.known == "" || inside.known == "":
		v.decide(now, cluster, &outside, &inside, view)
	default:
		v.unknown(outside.known, outside.detail)
	}
	if !cluster.ReadySince.IsZero() {
		v.judgeParts(now, cluster)
		v.judgeCertificate(now, history)
		v.judgeGuest(now, cluster)
	}
	return v
}

func period(now time.Time, cluster *Cluster) Period {
	switch {
	case !cluster.ReadySince.IsZero() && now.Sub(cluster.ReadySince) < Grace:
		return Creation
	case cluster.Upgrading:
		return Upgrade
	}
	return ""
}

func (v *Verdict) unknown(reason Reason, detail string) {
	v.API, v.Reason, v.Detail = Unknown, reason, detail
}

// judgeInside sets the state of an API that only the prober of the management cluster can see.
func (v *Verdict) judgeInside(now time.Time, cluster *Cluster, outside, inside *state, view *View) {
	switch inside.known {
	case "":
		v.decide(now, cluster, outside, inside, view)
	case NotProbed:
		v.unknown(InsideSilent, inside.silence())
	default:
		v.unknown(inside.known, inside.detail)
	}
}

// decide sets the state of an API of which at least one vantage is known.
func (v *Verdict) decide(now time.Time, cluster *Cluster, outside, inside *state, view *View) {
	good := func(s *state) bool { return s.known == "" && !s.bad }
	bad := func(s *state) bool { return s.known == "" && s.bad }
	seen := outside
	if outside.known != "" {
		seen = inside
	}
	switch {
	case good(outside), outside.known != "" && good(inside):
		v.API = Available
		if good(outside) && bad(inside) && insideFailsAlone(now, outside, inside) {
			v.add(InsideUnreachable, inside.since, inside.evidence())
		}
	case bad(outside) && good(inside) && inside.answered.Sub(outside.since) >= partDelay:
		v.API = Unavailable
		since, unreachable := view.Shards[cluster.Shard]
		// An answer from outside shows that the way works; its content then is the concern.
		switch kind := kindOf(&outside.failure); {
		case outside.failure.Outcome.Reached(), outside.failure.Outcome == probe.DNS:
			v.add(kind, outside.since, outside.evidence())
		case unreachable:
			v.add(ShardUnreachable, since, unreachableShard(cluster.Shard)+"; the prober inside reaches this one")
		default:
			v.add(WayBroken, outside.since, outside.evidence()+"; the prober inside reaches it")
		}
	default:
		v.API = Unavailable
		kind := kindOf(&seen.failure)
		if since, ok := view.Shards[cluster.Shard]; ok && !seen.failure.Outcome.Reached() {
			v.add(ShardUnreachable, since, unreachableShard(cluster.Shard))
			return
		}
		if bad(outside) && bad(inside) && inside.failure.Outcome.Reached() && !outside.failure.Outcome.Reached() {
			// The inside probe got further, so that its result is closer to the cause.
			kind, seen = kindOf(&inside.failure), inside
		}
		evidence := seen.evidence()
		if seen == outside && !bad(inside) && !seen.failure.Outcome.Reached() && seen.failure.Outcome != probe.DNS {
			kind, evidence = explainSilence(now, cluster, kind, seen)
		}
		if silence := inside.silence(); seen == outside && silence != "" {
			evidence += "; " + silence
		}
		v.add(kind, seen.since, evidence)
	}
	if v.API == Available && seen.slow {
		v.add(Slow, seen.slowSince, fmt.Sprintf("the last probe took %s", seen.last.Duration.Round(time.Millisecond)))
	}
}

func unreachableShard(shard string) string {
	return "most clusters of the shard " + shard + " stopped answering together"
}

// insideFailsAlone reports whether an API that fails inside answers outside. Around an outage that both see, one of them reports
// its beginning and its end first.
func insideFailsAlone(now time.Time, outside, inside *state) bool {
	return outside.answered.Sub(inside.since) >= partDelay && now.Sub(outside.failure.Time) >= partDelay
}

// explainSilence returns why an API does not answer outside, from what HyperShift reports about the parts of its control plane: a part
// that is not available is the cause; if all are available for long enough, it is the way to them. A part that became available just now does
// not count yet: the way is not broken while an API that was repaired waits for the next probe.
func explainSilence(now time.Time, cluster *Cluster, kind Kind, seen *state) (because Kind, evidence string) {
	evidence = seen.evidence()
	switch {
	case cluster.Etcd.Status == partUnavailable:
		return EtcdFails, evidence + "; HyperShift reports that etcd is not available"
	case cluster.APIServer.Status == partUnavailable:
		return kind, evidence + "; HyperShift reports that kube-apiserver is not available"
	case cluster.APIServer.Status == partAvailable && min(now.Sub(seen.since), now.Sub(cluster.APIServer.Since)) >= partDelay:
		return WayBroken, evidence + "; HyperShift reports that kube-apiserver is available"
	}
	return kind, evidence
}

// judgeParts adds concerns about parts of the control plane that no probe showed: of clusters that are not probed, and of those whose
// API still answers.
func (v *Verdict) judgeParts(now time.Time, cluster *Cluster) {
	delay := partDelay
	if v.API == Unknown && cluster.Unprobed != "" {
		delay = 0
	}
	switch {
	case v.API == Unavailable || v.During != "":
	case cluster.Etcd.failed(now, delay):
		v.add(EtcdFails, cluster.Etcd.Since, "HyperShift reports that etcd is not available")
	case v.API == Unknown && cluster.APIServer.failed(now, delay):
		v.add(APIFails, cluster.APIServer.Since, "HyperShift reports that kube-apiserver is not available")
	}
}

// judgeCertificate adds a concern about a certificate that ends soon. An expired one is a concern as soon as it ends: the
// kept connection of a prober does not notice.
func (v *Verdict) judgeCertificate(now time.Time, history *History) {
	end := history.CertificateEnd()
	if end.IsZero() || v.has(CertificateExpired) {
		return
	}
	switch left := end.Sub(now); {
	case left <= 0:
		v.add(CertificateExpired, end, "the certificate ended at "+end.UTC().Format(time.RFC3339))
	case left <= CertificateNotice:
		v.add(CertificateExpiring, end.Add(-CertificateNotice), "the certificate ends at "+end.UTC().Format(time.RFC3339))
	}
}
