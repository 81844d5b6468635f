package fleet

import (
	"fmt"
	"strings"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// An update is complete when its effect was read back, not when it was published. The digest on the management cluster
// proves that its API server accepted all fields. Conditions and some fields report what HyperShift made of them. pending
// is what is still awaited; its zero value means nothing.
type pending struct{ state, message string }

func (p pending) none() bool { return p.state == "" }

// clusterPending returns what HyperShift still has to do for a HostedCluster as it was read back.
func clusterPending(spec *csv1.ClusterSpec, seen *feedback.Observed) pending {
	reconciled := seen.Condition(feedback.ReconciliationSucceeded)
	switch {
	case !seen.ActedUpon():
		return pending{clusterstatus.StateReconciling, "Waiting for HyperShift to act on the desired state."}
	case reconciled.Status == "False":
		return pending{clusterstatus.StateReconciliationFailing, reconciled.Message}
	}
	if key := spec.GetEtcd().GetKmsKey(); key != nil {
		return keyPending(key, seen)
	}
	return pending{}
}

// keyPending returns what is awaited of the encryption of etcd with the customer's key. HyperShift deploys a new key
// version for reading, then for writing, and then rewrites all data. Until then the previous version is needed: a customer
// who disables it too early loses data. For a HyperShift release that does not report this, a valid key suffices.
func keyPending(key *csv1.KmsKey, seen *feedback.Observed) pending {
	encrypted := seen.Condition(feedback.DataEncrypted)
	switch {
	case keyRefused(key, seen):
		return pending{clusterstatus.EncryptionKeyInvalid, seen.Condition(feedback.ValidKMS).Message}
	case encrypted.Status == "False":
		return pending{encrypted.Reason, encrypted.Message + "."}
	case seen.EncryptionKey != "" && seen.EncryptionKey != key.GetKeyVersion():
		return pending{clusterstatus.StateEncryptionKeyRotation, fmt.Sprintf("Waiting for the rotation from key version %s to %s.", seen.EncryptionKey, key.GetKeyVersion())}
	}
	return pending{}
}

// rolledOut reports whether the control plane runs the release. For a version that does not report this, the condition
// Available decides.
func rolledOut(want Release, seen *feedback.Observed) bool {
	version, err := release.ParseVersion(want.Version)
	if err != nil || !version.ReportsControlPlaneVersion() {
		return seen.Image == want.Image
	}
	if len(seen.ControlPlaneVersions) == 0 {
		return false
	}
	newest := seen.ControlPlaneVersions[0]
	return newest.State == "Completed" && newest.Version == want.Version
}

// keyUnusable reports whether HyperShift cannot encrypt with the customer's key.
func keyUnusable(spec *csv1.ClusterSpec, seen *feedback.Observed) bool {
	key := spec.GetEtcd().GetKmsKey()
	return key != nil && keyRefused(key, seen)
}

// keyRefused reports whether HyperShift's validation refuses a key. HyperShift validates from the management cluster, which may not reach
// a private vault. The control plane's own route does. HyperShift has one reason, KeyVaultError, for
// a vault that it does not reach and for a key that the vault refuses. That reason therefore decides nothing about a private vault.
func keyRefused(key *csv1.KmsKey, seen *feedback.Observed) bool {
	valid := seen.Condition(feedback.ValidKMS)
	isPrivate := key.GetVaultVisibility() == csv1.Visibility_VISIBILITY_PRIVATE
	return valid.Status == "False" && !(isPrivate && valid.Reason == feedback.KeyVaultError)
}

// poolPending returns what HyperShift still has to do for a NodePool as it was read back, without regard to nodes.
func poolPending(spec *csv1.NodePoolSpec, seen *feedback.Observed) pending {
	skew, image := seen.Condition(feedback.VersionSkew), seen.Condition(feedback.ValidReleaseImage)
	autoscaling, repair := seen.Condition(feedback.AutoscalingEnabled), seen.Condition(feedback.AutorepairEnabled)
	switch {
	case !seen.ActedUpon():
		return pending{clusterstatus.StateReconciling, "Waiting for HyperShift to act on the desired state."}
	case skew.Status == "False":
		return pending{clusterstatus.StateUnsupportedVersionSkew, skew.Message}
	case image.Status == "False":
		return pending{clusterstatus.StateInvalidReleaseImage, image.Message}
	case autoscaling.Status != "" && (autoscaling.Status == "True") != autoscales(spec):
		return pending{clusterstatus.StateAutoscaling, "Waiting for HyperShift to switch autoscaling " + onOff(autoscales(spec)) + "."}
	// HyperShift reports that the repair is on when the first node has fetched its configuration.
	case repair.Status != "" && (repair.Status == "True") != spec.GetAutoRepair() && (seen.Replicas > 0 || !spec.GetAutoRepair()):
		return pending{clusterstatus.StateAutoRepair, "Waiting for HyperShift to switch the repair of nodes " + onOff(spec.GetAutoRepair()) + "."}
	}
	return pending{}
}

// autoscales reports whether a pool is rendered with a range. A range that ends at 0 is a size of 0.
func autoscales(spec *csv1.NodePoolSpec) bool { return spec.GetAutoscaling().GetMax() > 0 }

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// onlyStarting reports whether nodes are unhealthy only because they have not joined yet. HyperShift joins the reasons of all Machines with
// commas: WaitingForNodeRef until the machine exists, and NodeProvisioning until its node exists.
func onlyStarting(healthy feedback.Condition) bool {
	for reason := range strings.SplitSeq(healthy.Reason, ",") {
		if reason != "WaitingForNodeRef" && reason != "NodeProvisioning" {
			return false
		}
	}
	return true
}

// nodePoolLayer returns the progress of a node pool. The conditions are ordered by their importance for the customer. A
// pool is settled when its generation took effect before.
func nodePoolLayer(p *NodePool, seen *feedback.Observed, awaited pending, ready, settled bool) layer {
	at := func(state, format string, args ...any) layer {
		return layer{LayerNodePool, state, fmt.Sprintf(format, args...)}
	}
	want := fmt.Sprint(p.Spec.GetReplicas())
	most := int64(p.Spec.GetReplicas())
	if autoscaling := p.Spec.GetAutoscaling(); autoscaling != nil {
		want, most = fmt.Sprintf("%d to %d", autoscaling.GetMin(), autoscaling.GetMax()), int64(autoscaling.GetMax())
	}
	nodes := fmt.Sprintf("%d of %s nodes are ready.", seen.Replicas, want)
	healthy := seen.Condition(feedback.AllNodes)
	switch {
	case !awaited.none():
		return at(awaited.state, "%s", awaited.message)
	case seen.Condition(feedback.UpdatingVersion).Status == "True" && len(seen.NodeVersions) > 0:
		return at(clusterstatus.StateUpdatingVersion, "%s; %s", versionsOf(seen.NodeVersions, p.Release.Version), nodes)
	case seen.Condition(feedback.UpdatingVersion).Status == "True":
		return at(clusterstatus.StateUpdatingVersion, "%s", seen.Condition(feedback.UpdatingVersion).Message)
	case seen.Condition(feedback.UpdatingTemplate).Status == "True" || seen.Condition(feedback.UpdatingConfig).Status == "True":
		return at(clusterstatus.StateReplacingNodes, "Nodes are replaced one by one because their machine template or configuration changed; %s", nodes)
	case settled && healthy.Status == "False" && !onlyStarting(healthy) && most > 0:
		return at(clusterstatus.StateNodesUnhealthy, "%s %s", nodes, healthy.Message)
	case ready:
		return at(clusterstatus.StateReady, "%d nodes are ready.", seen.Replicas)
	case seen.Replicas > most:
		return at(clusterstatus.StateScalingDown, "%s Surplus nodes are drained before they are removed.", nodes)
	}
	return at(clusterstatus.StateWaitingForNodes, "%s", nodes)
}

// versionsOf returns how many nodes run the desired version, as text.
func versionsOf(versions []feedback.NodeVersion, wanted string) string {
	var all, there int64
	for _, v := range versions {
		all += v.Ready + v.Unready
		if v.Version == wanted {
			there += v.Ready
		}
	}
	return fmt.Sprintf("%d of %d nodes run %s", there, all, wanted)
}
