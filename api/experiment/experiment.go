// Package experiment names the ARM tags with which a customer requests experimental behaviour. The frontend validates them
// and stores those in effect with the resource, by the names of this package. The backend and Cluster Service act on the
// stored ones. ARM compares the names of tags without regard to case.
package experiment

import "time"

// The prefixes of experimental tags, in lower case. Tags of other resources with a prefix have no meaning.
const (
	ClusterPrefix  = "aro-hcp.experimental.cluster."
	NodePoolPrefix = "aro-hcp.experimental.nodepool."
)

// Tags of a cluster.
const (
	// SingleReplica has the value SingleReplicaValue for a control plane without redundancy.
	SingleReplica = ClusterPrefix + "single-replica"
	// SizeOverride has the value MinimalSize for a control plane with the least resource requests.
	SizeOverride = ClusterPrefix + "size-override"
	// ControlPlaneOperatorImage is the image of HyperShift's control plane operator, with a digest.
	ControlPlaneOperatorImage = ClusterPrefix + "control-plane-operator-image-override"
	// ExactVersion is the release of the control plane, MAJOR.MINOR.PATCH with an optional pre-release and build.
	ExactVersion = ClusterPrefix + "control-plane-exact-version"
	// ClusterCreationDeadline and ClusterDeletionDeadline are the longest durations of an operation, as in "90m".
	ClusterCreationDeadline = ClusterPrefix + "max-creation-duration"
	ClusterDeletionDeadline = ClusterPrefix + "max-deletion-duration"
)

// NodePoolCreationDeadline is the tag of a node pool with the longest duration of its creation.
const NodePoolCreationDeadline = NodePoolPrefix + "max-creation-duration"

// The values of SingleReplica and SizeOverride.
const (
	SingleReplicaValue = "SingleReplica"
	MinimalSize        = "Minimal"
)

// Deadlines returns the longest durations of a resource's creation and deletion from the experimental tags in effect; 0
// means not set.
func Deadlines(inEffect map[string]string) (creation, deletion time.Duration) {
	for name, duration := range map[string]*time.Duration{
		ClusterCreationDeadline: &creation, NodePoolCreationDeadline: &creation, ClusterDeletionDeadline: &deletion,
	} {
		if d, err := time.ParseDuration(inEffect[name]); err == nil && d > 0 {
			*duration = d
		}
	}
	return creation, deletion
}

// OperatorImageRepositories returns the registries and folders of repositories, such as quay.io/organization, whose images
// ControlPlaneOperatorImage may name. The frontend and the management clusters refuse others.
func OperatorImageRepositories() []string {
	return []string{"quay.io/hypershift", "quay.io/openshift-release-dev", "quay.io/redhat-user-workloads", "registry.redhat.io"}
}
