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
var minClusterVersion = version{major: release.OldestCluster.Major, minor: release.OldestCluster.Minor}

// firstMajorWithFeature is the first version that needs ExperimentalFeature.
var firstMajorWithFeature = version{major: 5, minor: 0, patch: -1}

func (r *Rules) clusterVersion(report *report, v *hub.Version, subscription *hub.Subscription) {
	const field, form = "properties.version.id", "must be of the form MAJOR.MINOR"
	parsed, ok := parseClusterVersion(v.ID)
	switch {
	case v.ID == "":
		report.required(field)
	case !ok:
		report.invalid(field, v.ID, form)
	default:
		// As in the published service, a full version is compared too. With the feature, PinVersion has replaced it.
		if parsed.patch >= 0 {
			report.invalid(field, v.ID, form)
		}
		if parsed.compare(minClusterVersion) < 0 {
			report.invalid(field, v.ID, "must be at least %s", minClusterVersion.line())
		}
		if parsed.compare(firstMajorWithFeature) >= 0 && !subscription.HasFeature(ExperimentalFeature) {
			report.invalid(field, v.ID, "must be lower than %s", firstMajorWithFeature)
		}
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
	*id = full.line().String()
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

// MissingChannel returns the violation of a new version that the cluster's channel group does not have, and nil if there is
// none. exists reports whether a channel group has a version, given as MAJOR.MINOR. An exact version needs no channel.
func (r *Rules) MissingChannel(cluster *hub.Cluster, exists func(channelGroup, minor string) bool) []apierror.Violation {
	id, channelGroup := cluster.Properties.Version.ID, cluster.Properties.Version.ChannelGroup
	if _, ok := parseVersion(id, 2); !ok || cluster.Experiments[experiment.ExactVersion] != "" || !r.offers(id) || exists(channelGroup, id) {
		return nil
	}
	found := &report{}
	found.invalid("properties.version.id", id, "the channel %s-%s does not exist", channelGroup, id)
	return found.violations()
}

// MissingChannelOfNew is MissingChannel for a new cluster. It returns nil if the version or the channel group violates another
// rule.
func (r *Rules) MissingChannelOfNew(cluster *hub.Cluster, subscription *hub.Subscription, exists func(channelGroup, minor string) bool) []apierror.Violation {
	found := &report{}
	r.clusterVersion(found, &cluster.Properties.Version, subscription)
	if len(found.findings) > 0 {
		return nil
	}
	return r.MissingChannel(cluster, exists)
}

// offeredVersion requires that the region offers a new or changed version that violates no other rule.
func (r *Rules) offeredVersion(report *report, change ClusterChange) {
	const field = "properties.version.id"
	id := change.New.Properties.Version.ID
	if change.Old != nil && change.Old.Properties.Version.ID == id || r.offers(id) {
		return
	}
	if !slices.ContainsFunc(report.findings, func(f finding) bool { return f.Field == field }) {
		report.unsupported(field, id, r.offer.ClusterVersions...)
	}
}

// offers reports whether the region offers a version, given as MAJOR.MINOR.
func (r *Rules) offers(id string) bool {
	return len(r.offer.ClusterVersions) == 0 || slices.Contains(r.offer.ClusterVersions, id)
}

// keyRotationVersion is the first control plane version that can rotate etcd's key.
var keyRotationVersion = version{major: 4, minor: 22, patch: -1}

// clusterVersionStep validates a change of the version: upwards only, by one minor version at a time. It also validates
// that the control plane's version supports a rotation of etcd's key.
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
		running = lowest.line()
	}
	if now, ok := parseClusterVersion(id); ok && now != old {
		if now.compare(old.first()) < 0 {
			report.invalid(field, id, "must not be lower than the current version %s", old)
		}
		switch {
		case now.major == running.major && now.minor > running.minor+1, now.major > running.major && !running.beforeMajor(now):
			report.invalid(field, id, "must be at most one minor version above the current version %s", running)
		case now.major < running.major:
			report.invalid(field, id, "must not be of a lower major version than the current version %s", running)
		}
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
