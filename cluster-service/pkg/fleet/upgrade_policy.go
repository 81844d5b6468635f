package fleet

import (
	"slices"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Candidacy is how a cluster stands with a policy.
type Candidacy struct {
	// Concerned says that the policy is about the cluster at all.
	Concerned bool
	// Version is the release to go to; empty when there is nothing to do, or it is left alone.
	Version string
	// Reason is why a cluster with a newer release is left alone, as it stands.
	Reason string
}

// Known is what has to be known beside a cluster to judge it.
type Known struct {
	// Own are the clusters that have policies of their own.
	Own map[string]bool
	// Active are the clusters with an upgrade under way.
	Active map[string]bool
	// Ended are the versions of the upgrades of each cluster that were aborted or failed, as far as they are kept.
	Ended map[string][]string
}

// CandidateOf says what a policy does with a cluster: to the newest release of its minor version that is recommended to it,
// unless something is in the way.
func CandidateOf(p *csv1.UpgradePolicy, c *Cluster, known Known, releases Releases) Candidacy {
	spec := p.GetSpec()
	at, err := release.ParseVersion(c.Release.Version)
	if err != nil || !concerns(spec, c, at, known.Own) {
		return Candidacy{}
	}
	version := NewestPatch(c, releases)
	candidacy := Candidacy{Concerned: true}
	switch {
	case version == c.Release.Version:
		return candidacy
	case c.Spec.GetExperiments()[experiment.ExactVersion] != "":
		candidacy.Reason = "It is to run exactly " + c.Spec.GetExperiments()[experiment.ExactVersion] + "."
	case slices.Contains(known.Ended[c.UID], version):
		candidacy.Reason = "An upgrade of it to " + version + " was aborted or failed; it is for somebody to begin the next."
	case known.Active[c.UID]:
		candidacy.Reason = "An upgrade of it is under way."
	case c.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY:
		candidacy.Reason = "It is not ready."
	default:
		candidacy.Version = version
	}
	return candidacy
}

func concerns(spec *csv1.UpgradePolicySpec, c *Cluster, at release.Version, own map[string]bool) bool {
	if c.Deleting() || c.Shard == "" {
		return false
	}
	if spec.GetClusterUid() != "" {
		return spec.GetClusterUid() == c.UID
	}
	group := c.Spec.GetVersion().GetChannelGroup()
	if group == "" {
		group = "stable"
	}
	within := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return !own[c.UID] && within(spec.GetChannelGroups(), group) && within(spec.GetMinorVersions(), at.MinorID()) && within(spec.GetProvisionShards(), c.Shard)
}
