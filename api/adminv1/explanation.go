package adminv1

import "time"

// Party is who must act on an explanation item.
type Party string

// The parties.
const (
	// PartyNone means that nothing is awaited.
	PartyNone Party = "none"
	// PartyService means that hcpmesh continues without help.
	PartyService Party = "service"
	// PartySRE, PartyCustomer and PartyAzure must act before the resource can continue.
	PartySRE      Party = "sre"
	PartyCustomer Party = "customer"
	PartyAzure    Party = "azure"
)

// Codes of explanation items. Codes are stable; texts are not.
const (
	// ExplanationReady means that the cluster is ready and nothing is awaited.
	ExplanationReady = "Ready"
	// ExplanationWaiting means that the resource waits for the layer and state of the item.
	ExplanationWaiting = "Waiting"
	// ExplanationPaused means that an SRE paused the cluster's reconciliation.
	ExplanationPaused = "Paused"
	// ExplanationControlPlaneLost means that the control plane was removed with its data from the management cluster.
	ExplanationControlPlaneLost = "ControlPlaneLost"
	// ExplanationNoProgress means that the resource is not in its desired state and no layer reports what is awaited.
	ExplanationNoProgress = "NoProgress"
	// ExplanationDeleting means that the resource is being deleted; State is the name of the deletion step.
	ExplanationDeleting = "Deleting"
	// ExplanationDeleted means that the resource is deleted, or never existed.
	ExplanationDeleted = "Deleted"
	// ExplanationRemovalPending means that the resource is gone from the fleet and still in ARM.
	ExplanationRemovalPending = "RemovalPending"
	// ExplanationDeletionFailed means that a deletion failed before the fleet began it.
	ExplanationDeletionFailed = "DeletionFailed"
	// ExplanationNotDelivered means that an accepted request has not reached Cluster Service.
	ExplanationNotDelivered = "NotDelivered"
	// ExplanationDeliveryExpired means that the operation ended at its deadline before the request reached Cluster Service.
	ExplanationDeliveryExpired = "DeliveryExpired"
	// ExplanationRequestRejected means that Cluster Service rejected the request.
	ExplanationRequestRejected = "RequestRejected"
	// ExplanationManifestsRejected means that Maestro rejected the manifests permanently.
	ExplanationManifestsRejected = "ManifestsRejected"
	// ExplanationApplyRefused means that the API server of the management cluster refuses the manifests permanently.
	ExplanationApplyRefused = "ApplyRefused"
	// ExplanationInvalid means that the control plane rejected the resource.
	ExplanationInvalid = "Invalid"
	// ExplanationFailed means that Cluster Service does not retry until the resource changes.
	ExplanationFailed = "Failed"
	// ExplanationOperationFailed means that the resource is ready although its last operation failed.
	ExplanationOperationFailed = "OperationFailed"
	// ExplanationOrphaned means that the fleet holds the resource and ARM does not.
	ExplanationOrphaned = "Orphaned"
	// ExplanationLayerAway means that a component of the region is away. Layer is its layer and State its ComponentState. It
	// replaces the other items, because what the layers reported last may be outdated.
	ExplanationLayerAway = "LayerAway"
	// ExplanationOperationNotCompleted means that the fleet has reached the desired state and the backend has not completed the
	// customer's operation.
	ExplanationOperationNotCompleted = "OperationNotCompleted"
	// ExplanationRegionReady means that all components of the region are ready and all clusters are in their desired state.
	ExplanationRegionReady = "RegionReady"
	// ExplanationClustersWaiting means that clusters of the region wait for the layer and state of the item.
	ExplanationClustersWaiting = "ClustersWaiting"
	// ExplanationConcern means that monitor sees something wrong with the API of the cluster. State is the kind of the concern.
	ExplanationConcern = "Concern"
	// ExplanationUnknown means that the layers that hold the resource could not be read.
	ExplanationUnknown = "Unknown"
)

// Codes of sentences.
const (
	// Evidence.
	SentenceReport            = "Report"            // What another system reports.
	SentenceUsualDuration     = "UsualDuration"     // How long the state usually takes; only if it takes longer.
	SentenceLikelyCause       = "LikelyCause"       // The probable cause of the delay.
	SentenceSharedByChildren  = "SharedByChildren"  // Children that wait for the same.
	SentenceShardCapacity     = "ShardCapacity"     // How full the provision shards are.
	SentenceAgentContact      = "AgentContact"      // The last contact with the agent of the management cluster.
	SentenceVersions          = "Versions"          // The versions between which a control plane moves.
	SentenceUpgrade           = "Upgrade"           // The upgrade in progress, and who requested it.
	SentenceUpgradeGate       = "UpgradeGate"       // A gate that the upgrade has not passed.
	SentenceUpgradePaused     = "UpgradePaused"     // Who paused the upgrade, and why.
	SentenceUpgradeStep       = "UpgradeStep"       // The step of the upgrade in progress.
	SentenceComponent         = "Component"         // The component that the rollout waits for.
	SentenceAwaitedSecret     = "AwaitedSecret"     // A Secret that the customer has not created.
	SentenceDeletionProgress  = "DeletionProgress"  // How many deletion steps are done, and what the current step waits for.
	SentenceDeletionAction    = "DeletionAction"    // What an SRE did about a deletion.
	SentenceLastError         = "LastError"         // The last error of a deletion step.
	SentenceStuckStep         = "StuckStep"         // Another deletion step that is stuck.
	SentenceGenerations       = "Generations"       // The generations in ARM and in Cluster Service.
	SentencePauseReason       = "PauseReason"       // Who paused the cluster, and why.
	SentenceTicket            = "Ticket"            // The ticket of a pause.
	SentenceInterruptedState  = "InterruptedState"  // What the resource waited for when it was paused.
	SentenceLastOperation     = "LastOperation"     // The last operation and its duration.
	SentenceOperationError    = "OperationError"    // The error of an operation.
	SentenceContinuedInFleet  = "ContinuedInFleet"  // The fleet reached the desired state after the operation failed.
	SentenceIdentity          = "Identity"          // The HostedCluster that held the cluster's data, and the one in its place.
	SentenceHeartbeat         = "Heartbeat"         // The last heartbeat of the agent, which shows whether it runs.
	SentenceManifestsAccepted = "ManifestsAccepted" // Maestro has the manifests; the agent has not confirmed them.
	SentenceComponentState    = "ComponentState"    // How a component answered, and when it was last ready.
	SentenceDependents        = "Dependents"        // Components that are not ready either and need one that is away.
	SentenceAffected          = "Affected"          // How many clusters an outage affects.
	SentenceInCommon          = "InCommon"          // What clusters that are not in their desired state have in common.
	SentenceLastKnown         = "LastKnown"         // What was reported last about a resource, at the time of the sentence.

	// Actions.
	SentenceNoAction         = "NoAction"         // Nobody must act.
	SentenceAction           = "Action"           // What the responsible party must do.
	SentenceOutcome          = "Outcome"          // What happens next, or meanwhile.
	SentenceActiveOperation  = "ActiveOperation"  // The customer's operation in progress, and its deadline.
	SentenceCustomerNotified = "CustomerNotified" // The operation by which the customer learned of the failure.

	// Facts.
	SentencePlacement = "Placement" // Shard, cluster ID, versions and API URL.
	SentenceRemoval   = "Removal"   // An object that another client removed from the management cluster.
	SentenceNodePools = "NodePools" // The node pools with their sizes and versions.
	SentenceHealth    = "Health"    // The state of the API, as monitor sees it, or why it is unknown.
	SentenceSummary   = "Summary"   // The first sentence of an item.
)

// Explanation states what a cluster and its children wait for, since when, who must act, and which command helps.
type Explanation struct {
	// Time is when the facts were read. Ages in texts are relative to it.
	Time    time.Time `json:"time"`
	Cluster Cluster   `json:"cluster"`
	// Items has at least one element. Items on which an SRE or the customer must act come first.
	Items []ExplanationItem `json:"items"`
	// Facts describe the cluster: where it runs, its versions and its node pools.
	Facts []Sentence `json:"facts,omitempty"`
	// Health is what monitor states about the API of the cluster; nil if that could not be read.
	Health *Health `json:"health,omitempty"`
	// Components are those of the cluster's layers that are not ready.
	Components []Component `json:"components,omitempty"`
	// Partial is true if a layer could not be read. Unavailable maps each such layer to the reason.
	Partial     bool              `json:"partial"`
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// ExplanationItem states what one resource waits for.
type ExplanationItem struct {
	// Code is one of the constants that begin with Explanation.
	Code string `json:"code"`
	// Subject names the resource, for example `node pool workers`; ResourceID is its ARM resource ID.
	Subject    string `json:"subject"`
	ResourceID string `json:"resourceId"`
	// Layer and State identify the progress entry or deletion step that is awaited. Both are empty if there is none.
	Layer string `json:"layer,omitempty"`
	State string `json:"state,omitempty"`
	// Summary states what is awaited and since when. Evidence states why that is known.
	Summary  Sentence   `json:"summary"`
	Evidence []Sentence `json:"evidence,omitempty"`
	// Since is when the wait began. It is zero if nothing is awaited, or if the time is unknown.
	Since time.Time `json:"since,omitzero"`
	// Overdue is true if the wait is longer than UsualDuration, a Go duration; empty means that no limit is known.
	Overdue       bool   `json:"overdue"`
	UsualDuration string `json:"usualDuration,omitempty"`
	// Responsible is the party that must act; Actions state what it must do and what happens next.
	Responsible Party      `json:"responsible"`
	Actions     []Sentence `json:"actions,omitempty"`
	// Command is the hcpctl command that helps; empty if there is none.
	Command string `json:"command,omitempty"`
}

// Sentence is one statement of an explanation.
type Sentence struct {
	// Code is one of the constants that begin with Sentence. It is stable; Text is not.
	Code string `json:"code"`
	Text string `json:"text"`
	// Time is the moment that the sentence is about, so that a client can show its current age; zero if there is none.
	Time time.Time `json:"time,omitzero"`
}
