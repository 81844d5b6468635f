package validation

import (
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// minClusterVersion is the oldest version that clusters can have.
var minClusterVersion = version{major: release.OldestCluster.Major, minor: release.OldestCluster.Minor, patch: -1}

// firstMajorWithFeature is the first version that needs ExperimentalFeature.
var firstMajorWithFeature = version{major: 5, minor: 0, patch: -1}

func (r *Rules) clusterVersion(report *report, v *hub.Version, subscription *hub.Subscription) {
	const field = "properties.version.id"
	parsed, ok := parseVersion(v.ID, 2)
	switch {
	case v.ID == "":
		report.required(field)
	case !ok:
		report.invalid(field, v.ID, "must be of the form MAJOR.MINOR")
	case parsed.compare(minClusterVersion) < 0:
		report.invalid(field, v.ID, "must be at least %s", minClusterVersion)
	case parsed.compare(firstMajorWithFeature) >= 0 && !subscription.HasFeature(ExperimentalFeature):
		report.invalid(field, v.ID, "must be lower than %s", firstMajorWithFeature)
	case !r.offers(v.ID):
		report.unsupported(field, v.ID, r.offer.ClusterVersions...)
	}
	channelGroup(report, "properties.version.channelGroup", v.ChannelGroup, subscription)
}

// PinVersion replaces a full version of a cluster by its MAJOR.MINOR if the subscription has ExperimentalFeature. The full
// version becomes the exact version in effect, unless a tag sets another one. Call it after ApplyExperiments.
func (r *Rules) PinVersion(cluster *hub.Cluster, subscription *hub.Subscription) {
	id := &cluster.Properties.Version.ID
	full, ok := parseRelease(*id)
	if !ok || !subscription.HasFeature(ExperimentalFeature) {
		return
	}
	if cluster.Experiments[experiment.ExactVersion] == "" {
		cluster.Experiments = maps.Clone(cluster.Experiments)
		if cluster.Experiments == nil {
			cluster.Experiments = map[string]string{}
		}
		cluster.Experiments[experiment.ExactVersion] = *id
	}
	*id = version{major: full.major, minor: full.minor, patch: -1}.String()
}

// StrandedNodePools returns the violation of a new version that leaves node pools too many minor versions behind the
// control plane, and nil if there is none.
func (r *Rules) StrandedNodePools(cluster *hub.Cluster, pools map[string][]string) []apierror.Violation {
	id := cluster.Properties.Version.ID
	controlPlane, ok := parseVersion(id, 2)
	if !ok {
		return nil
	}
	var stranded []string
	for _, name := range sortedKeys(pools) {
		if lowest, ok := lowestVersion(pools[name]); ok && controlPlane.ordinal()-lowest.ordinal() > maxSkew {
			stranded = append(stranded, name+" ("+lowest.String()+")")
		}
	}
	if len(stranded) == 0 {
		return nil
	}
	found := &report{}
	found.invalid("properties.version.id", id, "must be at most %d minor versions above every node pool: upgrade %s first", maxSkew, strings.Join(stranded, ", "))
	return found.violations()
}

// offers reports whether the region offers a version, given as MAJOR.MINOR.
func (r *Rules) offers(id string) bool {
	return len(r.offer.ClusterVersions) == 0 || slices.Contains(r.offer.ClusterVersions, id)
}

// keyRotationVersion is the first control plane version that can rotate etcd's key.
var keyRotationVersion = version{major: 4, minor: 22, patch: -1}

// clusterVersionStep validates a change of the version: upwards only, by one minor version at a time, to a version that
// the channel group has. It also validates that the control plane's version supports a rotation of etcd's key.
func (r *Rules) clusterVersionStep(report *report, change ClusterChange) {
	const field = "properties.version.id"
	id := change.New.Properties.Version.ID
	old, ok := parseVersion(change.Old.Properties.Version.ID, 2)
	if !ok {
		return
	}
	// The running version counts and not the desired one: an upgrade that failed has not changed the control plane.
	running := old
	if lowest, ok := lowestVersion(change.ActiveVersions); ok && lowest.ordinal() < old.ordinal() {
		running = version{major: lowest.major, minor: lowest.minor, patch: -1}
	}
	now, ok := parseVersion(id, 2)
	switch {
	case !ok || now == old:
	case now.compare(old) < 0:
		report.invalid(field, id, "must not be lower than the current version %s", old)
	case now.compare(running) != 0 && !(now.major == running.major && now.minor == running.minor+1) && !running.beforeMajor(now):
		report.invalid(field, id, "must be at most one minor version above the current version %s", running)
	case change.New.Experiments[experiment.ExactVersion] == "" && r.offers(id) && !r.offer.HasChannel(change.New.Properties.Version.ChannelGroup, id):
		report.invalid(field, id, "the channel %s-%s does not exist", change.New.Properties.Version.ChannelGroup, id)
	}

	oldKey, newKey := keyVersion(change.Old), keyVersion(change.New)
	if oldKey != "" && newKey != "" && oldKey != newKey && running.compare(keyRotationVersion) < 0 {
		report.invalid("properties.etcd.dataEncryption.customerManaged.kms.activeKey.version", newKey,
			"the key can be rotated only on a control plane of version %s or later", keyRotationVersion)
	}
}

func keyVersion(cluster *hub.Cluster) string {
	managed := cluster.Properties.Etcd.DataEncryption.CustomerManaged
	if managed == nil || managed.KMS == nil {
		return ""
	}
	return managed.KMS.ActiveKey.Version
}
