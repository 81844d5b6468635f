package roster

import (
	"net/netip"
	"slices"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// Entry is what monitor knows about one cluster.
type Entry struct {
	UID        string
	ResourceID string
	// Version is the newest version that the control plane runs, or empty.
	Version string
	// Target is the API server. It has a URL and authorities unless Cluster.Unprobed is set.
	Target  probe.Target
	Cluster judge.Cluster
	// Inside is the last report of the management cluster's prober about the API server, or the zero value.
	Inside hostedreport.InsideReport
}

// entryOf returns the entry of a cluster. addresses are those from which API servers see monitor's connections. The time of
// readiness is that of known if the cluster was ready before, and now if it became ready; for a cluster that is new to the
// roster, it is the time of its creation.
func entryOf(c *clusterservicev1.Cluster, known *Entry, addresses []netip.Addr, now time.Time) Entry {
	s := c.GetStatus()
	entry := Entry{UID: c.GetUid(), ResourceID: c.GetResourceId(),
		Target:  probe.Target{Cluster: c.GetUid(), URL: s.GetApiUrl(), Authorities: s.GetServingCertificateAuthority()},
		Cluster: judge.Cluster{Shard: s.GetProvisionShard(), Upgrading: len(s.GetActiveVersions()) > 1}, Inside: insideOf(s.GetInsideObservation())}
	if versions := s.GetActiveVersions(); len(versions) > 0 {
		entry.Version = versions[0]
	}
	// A generation takes effect for the first time when the control plane is available.
	if s.GetObservedGeneration() > 0 && c.GetDeleteTime() == nil {
		switch {
		case known == nil:
			entry.Cluster.ReadySince = c.GetCreateTime().AsTime()
		case known.Cluster.ReadySince.IsZero():
			entry.Cluster.ReadySince = now
		default:
			entry.Cluster.ReadySince = known.Cluster.ReadySince
		}
	}
	for _, condition := range s.GetConditions() {
		part := judge.Part{Status: condition.GetStatus(), Since: condition.GetLastTransitionTime().AsTime()}
		switch condition.GetType() {
		case clusterstatus.EncryptionKeyUsable:
			if condition.GetStatus() == "False" {
				entry.Cluster.KeyInvalidSince, entry.Cluster.KeyMessage = part.Since, condition.GetMessage()
			}
		case clusterstatus.APIServerAvailable:
			entry.Cluster.APIServer = part
		case clusterstatus.EtcdAvailable:
			entry.Cluster.Etcd = part
		case clusterstatus.DataPlaneConnectionAvailable:
			entry.Cluster.DataPlane = part
		case clusterstatus.Degraded:
			entry.Cluster.Degraded = judge.Condition{Part: part, Message: condition.GetMessage()}
		case clusterstatus.VersionSucceeding:
			entry.Cluster.Operators = judge.Condition{Part: part, Message: condition.GetMessage()}
		}
	}
	switch {
	case entry.Cluster.ReadySince.IsZero():
		entry.Cluster.Unprobed = judge.NotReady
	case entry.Target.URL == "", entry.Target.Authorities == "":
		entry.Cluster.Unprobed = judge.NoEndpoint
	case !allowed(c.GetSpec().GetApi(), addresses):
		entry.Cluster.Unprobed = judge.Blocked
	}
	return entry
}

// allowed reports whether an API accepts connections from all of monitor's addresses. With authorized CIDRs and without known
// addresses it does not: a rejected connection would look like an outage.
func allowed(api *clusterservicev1.Api, addresses []netip.Addr) bool {
	if api.GetVisibility() == clusterservicev1.Visibility_VISIBILITY_PRIVATE {
		return false
	}
	cidrs := api.GetAuthorizedCidrs()
	if len(cidrs) == 0 {
		return true
	}
	return len(addresses) > 0 && !slices.ContainsFunc(addresses, func(address netip.Addr) bool {
		return !slices.ContainsFunc(cidrs, func(cidr string) bool {
			prefix, err := netip.ParsePrefix(cidr)
			return err == nil && prefix.Contains(address)
		})
	})
}

// insideOf returns a report of the management cluster's prober. A newer prober can report an outcome that this monitor does not have: it is
// then that of a server error, because only the class is unknown.
func insideOf(o *clusterservicev1.InsideObservation) hostedreport.InsideReport {
	if o == nil {
		return hostedreport.InsideReport{}
	}
	report := hostedreport.InsideReport{State: hostedreport.InsideState(o.GetState()), Since: o.GetSince().AsTime(), Check: o.GetCheck(), Outcome: o.GetOutcome(), Detail: o.GetDetail(),
		Observed: o.GetObservedTime().AsTime()}
	if end := o.GetCertificateEndTime(); end != nil {
		report.CertificateEnd = end.AsTime()
	}
	if report.State == hostedreport.InsideUnavailable && !slices.Contains(probe.Outcomes(), probe.Outcome(report.Outcome)) {
		report.Outcome = string(probe.ServerError)
	}
	return report
}
