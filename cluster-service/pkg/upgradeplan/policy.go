package upgradeplan

import (
	"slices"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Candidacy is the result of EvaluatePolicy for one cluster.
type Candidacy struct {
	// Matches reports whether the policy applies to the cluster.
	Matches bool
	// Version is the release that the policy upgrades the cluster to; empty if the cluster is up to date or is skipped.
	Version string
	// Reason is the reason for which a cluster is skipped although there is a newer release.
	Reason string
}

// FleetState is what EvaluatePolicy reads about all clusters together.
type FleetState struct {
	// OwnPolicy has the UIDs of the clusters with a policy of their own.
	OwnPolicy map[string]bool
	// Active has the UIDs of the clusters with an active upgrade.
	Active map[string]bool
	// Ended has, by cluster UID, the versions of upgrades that were aborted or failed and are still recorded.
	Ended map[string][]string
}

// EvaluatePolicy decides whether a policy upgrades a cluster. A policy upgrades a cluster to the newest recommended release
// of its minor version, unless something prevents that.
func EvaluatePolicy(p *csv1.UpgradePolicy, c *fleet.Cluster, state FleetState, releases Releases) Candidacy {
	spec := p.GetSpec()
	at, err := release.ParseVersion(c.Release.Version)
	if err != nil || !matches(spec, c, at, state.OwnPolicy) {
		return Candidacy{}
	}
	version := NewestPatch(c, releases)
	candidacy := Candidacy{Matches: true}
	switch {
	case version == c.Release.Version:
		return candidacy
	case c.Spec.GetExperiments()[experiment.ExactVersion] != "":
		candidacy.Reason = "The cluster is pinned to exactly " + c.Spec.GetExperiments()[experiment.ExactVersion] + "."
	case slices.Contains(state.Ended[c.UID], version):
		candidacy.Reason = "An upgrade of the cluster to " + version + " was aborted or failed. An SRE must start the next one."
	case state.Active[c.UID]:
		candidacy.Reason = "Another upgrade of the cluster is active."
	case c.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY:
		candidacy.Reason = "The cluster is not ready."
	default:
		candidacy.Version = version
	}
	return candidacy
}

func matches(spec *csv1.UpgradePolicySpec, c *fleet.Cluster, at release.Version, ownPolicy map[string]bool) bool {
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
	anyOr := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	return !ownPolicy[c.UID] && anyOr(spec.GetChannelGroups(), group) && anyOr(spec.GetMinorVersions(), at.MinorID()) && anyOr(spec.GetProvisionShards(), c.Shard)
}
