package clusterstatus

// The states of the layers that admin explains by name. Cluster Service also reports the reasons of HyperShift's conditions as states.
const (
	// States of LayerPlacement.
	StatePlaced             = "Placed"
	StateWaitingForCapacity = "WaitingForCapacity"
	StateWaitingForCluster  = "WaitingForCluster"

	// States of LayerMaestro.
	StatePublishing = "Publishing"
	StateRetrying   = "Retrying"
	StatePublished  = "Published"

	// States of LayerAzure.
	StateIdentityDeleted     = "IdentityDeleted"
	StateIdentityReadFailing = "IdentityReadFailing"
	StateRenewalFailing      = "RenewalFailing"
	// StateRequirementsUnmet is a state of a node pool.
	StateRequirementsUnmet = "RequirementsUnmet"

	// States of LayerManagementCluster.
	StateApplying         = "Applying"
	StateApplied          = "Applied"
	StateApplyFailing     = "ApplyFailing"
	StateRemoving         = "Removing"
	StateRemovingRequests = "RemovingRequests"
	StateDeleted          = "Deleted"

	// States of LayerControlPlane.
	StateRollingOut             = "RollingOut"
	StateAvailable              = "Available"
	StateConfigured             = "Configured"
	StateAwaitingSecret         = "AwaitingSecret"
	StateIssuerRefused          = "IssuerRefused"
	StateIssuerUnreachable      = "IssuerUnreachable"
	StateWaitingForControlPlane = "WaitingForControlPlane"
	StateSigning                = "Signing"
	StateAwaitingRestart        = "AwaitingRestart"
	StateAwaitingRevocation     = "AwaitingRevocation"

	StateReconciliationFailing = "ReconciliationFailing"
	StateEncryptionKeyRotation = "EncryptionKeyRotation"

	// States of LayerNodePool.
	StateUnsupportedVersionSkew = "UnsupportedVersionSkew"
	StateInvalidReleaseImage    = "InvalidReleaseImage"
	StateAutoscaling            = "Autoscaling"
	StateAutoRepair             = "AutoRepair"
	StateUpdatingVersion        = "UpdatingVersion"
	StateReplacingNodes         = "ReplacingNodes"
	StateNodesUnhealthy         = "NodesUnhealthy"
	StateScalingDown            = "ScalingDown"
	StateWaitingForNodes        = "WaitingForNodes"

	// States of LayerUpgrade.
	StateAwaitingAcknowledgement = "AwaitingAcknowledgement"
	StatePaused                  = "Paused"
	StateControlPlane            = "ControlPlane"
	StateNodePools               = "NodePools"

	// States of several layers.
	StateWaiting     = "Waiting"
	StateReconciling = "Reconciling"
	StateReady       = "Ready"
	StateRefused     = "Refused"
	StateRemoved     = "Removed"
)

// The kinds of drift of a work: how the layers below Cluster Service differ from it.
const (
	// DriftRefused: Maestro rejects the content. DriftUnpublished: publishing to Maestro fails.
	DriftRefused     = "Refused"
	DriftUnpublished = "Unpublished"
	// DriftRemoved: the main object does not exist on the management cluster. DriftBeingRemoved: another client deletes it.
	DriftRemoved      = "Removed"
	DriftBeingRemoved = "BeingRemoved"
	// DriftReplaced: the HostedCluster or its control-plane namespace is not the one that the cluster was installed with.
	DriftReplaced = "Replaced"
	// DriftApplyRefused: the API server of the management cluster permanently refuses the objects.
	DriftApplyRefused = "ApplyRefused"
	// DriftNotApplied: the objects could not be applied, and a retry can succeed.
	DriftNotApplied = "NotApplied"
	// DriftForeignFields: another client has set fields of the main object that no manifest sets. It is also the state of the layer.
	DriftForeignFields = "ForeignFields"
)
