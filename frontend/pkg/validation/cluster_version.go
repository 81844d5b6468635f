package validation

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// minClusterVersion is the oldest version that clusters can have.
var minClusterVersion = version{major: 4, minor: 20, patch: -1}

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
	case len(r.offer.ClusterVersions) > 0 && !slices.Contains(r.offer.ClusterVersions, v.ID):
		report.unsupported(field, v.ID, r.offer.ClusterVersions...)
	}
	channelGroup(report, "properties.version.channelGroup", v.ChannelGroup, subscription)
}

// keyRotationVersion is the first control plane version that can rotate etcd's key.
var keyRotationVersion = version{major: 4, minor: 22, patch: -1}

// clusterVersionStep validates a change of the version: upwards only, by one minor version at a time. It also validates
// that the control plane's version supports a rotation of etcd's key.
func clusterVersionStep(report *report, change ClusterChange) {
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
	case now.major == running.major && now.minor == running.minor+1, now.compare(running) == 0:
	case !running.beforeMajor(now):
		report.invalid(field, id, "must be at most one minor version above the current version %s", running)
	case !change.Subscription.HasFeature(ExperimentalFeature):
		report.forbidden(field, id, "a new major version needs the feature %s registered on the subscription", ExperimentalFeature)
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
