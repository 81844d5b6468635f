// Package experiment names the ARM tags with which a customer requests experimental behaviour. The frontend validates them,
// and the backend and Cluster Service act on them. ARM compares the names of tags without regard to case.
package experiment

import "strings"

// Prefix begins the name of every experimental tag.
const Prefix = "aro-hcp.experimental."

// Tags of a cluster.
const (
	// SingleReplica is "true" for a control plane without redundancy.
	SingleReplica = Prefix + "cluster.single-replica"
	// SizeOverride is the size class of the control plane.
	SizeOverride = Prefix + "cluster.size-override"
	// ControlPlaneOperatorImage is the image of HyperShift's control plane operator.
	ControlPlaneOperatorImage = Prefix + "cluster.control-plane-operator-image-override"
	// ExactVersion is the patch release of the control plane, MAJOR.MINOR.PATCH.
	ExactVersion = Prefix + "cluster.control-plane-exact-version"
	// ClusterCreationDeadline and ClusterDeletionDeadline are the longest durations of an operation, as in "90m".
	ClusterCreationDeadline = Prefix + "cluster.max-creation-duration"
	ClusterDeletionDeadline = Prefix + "cluster.max-deletion-duration"
)

// NodePoolCreationDeadline is the tag of a node pool with the longest duration of its creation.
const NodePoolCreationDeadline = Prefix + "nodepool.max-creation-duration"

// Is reports whether a tag is experimental.
func Is(tag string) bool { return strings.HasPrefix(strings.ToLower(tag), Prefix) }

// IsDeadline reports whether a tag sets the longest duration of an operation.
func IsDeadline(tag string) bool {
	return Is(tag) && strings.HasSuffix(strings.ToLower(tag), "-duration")
}
