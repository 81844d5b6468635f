package explanation

import (
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// The layers of progress, as Cluster Service names them, and the pause, which blocks a resource like a layer.
const (
	layerPlacement         = clusterstatus.LayerPlacement
	layerMaestro           = clusterstatus.LayerMaestro
	layerManagementCluster = clusterstatus.LayerManagementCluster
	layerControlPlane      = clusterstatus.LayerControlPlane
	layerNodePool          = clusterstatus.LayerNodePool
	layerAzure             = clusterstatus.LayerAzure
	layerUpgrade           = clusterstatus.LayerUpgrade
	layerPaused            = "paused"
)

// wait is the meaning of a state of a layer. Texts may hold the placeholders {shard}, {cluster}, {asked}, {scope}, {uid},
// {name}, {noun}, {component}, {gate} and {subject}.
type wait struct {
	// awaits completes `has been waiting for`.
	awaits string
	// summary replaces the whole summary; {since} stands for the duration.
	summary string
	// reporter is the system that reported the entry's message; without a reporter the message is left out. evidence adds
	// more sentences.
	reporter string
	evidence func(s *subject) []adminv1.Sentence
	// responsible must act until usual has passed, which is the longest normal duration. With a usual of zero this never
	// changes. action states what the party must do; it is empty for the service and for Azure.
	responsible adminv1.Party
	usual       time.Duration
	action      string
	// likelyCause is the probable cause, as a sentence, once usual has passed. overdueAction is what an SRE must do then.
	likelyCause, overdueAction string
	// outcome states what happens next or meanwhile, in sentences.
	outcome                 string
	command, overdueCommand string
}

const (
	watch      = "hcpctl cluster watch {cluster}{scope}"
	mustGather = "hcpctl must-gather {asked}"
	hyperShift = "HyperShift on {shard}"

	operatorIdle    = "HyperShift's operator does not reconcile the object."
	checkOperator   = "check that HyperShift's operator runs on {shard}"
	checkAgent      = "check that the Maestro agent of {shard} works"
	drainBlocked    = "Without a drain timeout, a pod disruption budget of the customer can block the drain of a node forever."
	checkDrain      = "find the node that does not drain, and inform the customer"
	publishedAgain  = "Cluster Service retries every 30 seconds and continues automatically."
	upgradeUnmoved  = "The cluster keeps its version meanwhile. The upgrade starts automatically once the last gate is passed."
	upgradeStatus   = "hcpctl upgrade status {uid}"
	checkRollout    = "find out why {component} on {shard} does not complete its rollout"
	hyperShiftRetry = "HyperShift keeps retrying."
)

// keyRotation is the rotation of the key that encrypts etcd's data, in any of its steps.
var keyRotation = wait{
	awaits: "all data in etcd to be encrypted with the new version of the key", reporter: hyperShift, responsible: adminv1.PartyService, usual: time.Hour,
	overdueAction: "check the API servers and the storage migrations on {shard}", command: watch,
	outcome: "The previous version of the key must stay enabled until this is done.",
}

// waits holds the known states by layer and state; unlisted explains all others.
var waits = map[[2]string]wait{
	{layerPlacement, clusterstatus.StateWaitingForCapacity}: {
		awaits: "a provision shard with free capacity", reporter: "Cluster Service", evidence: shardCapacity, responsible: adminv1.PartySRE,
		action: "uncordon a shard, raise a capacity, or add a management cluster", command: "hcpctl shard explain {uid}",
		outcome: "Once a shard has capacity, waiting clusters are placed automatically, the oldest first.",
	},
	{layerPlacement, clusterstatus.StateWaitingForCluster}: {
		awaits: "its cluster to be placed", responsible: adminv1.PartyService, outcome: "It follows its cluster immediately.",
	},
	{layerMaestro, clusterstatus.StatePublishing}: {
		awaits: "Cluster Service to send its manifests to Maestro", responsible: adminv1.PartyService, usual: time.Minute,
		likelyCause: "Cluster Service has the manifests and does not publish them.", overdueAction: "check that Cluster Service is ready, and search its log for publishing errors",
	},
	{layerMaestro, clusterstatus.StateRetrying}: {
		awaits: "Maestro to accept its manifests", reporter: "Cluster Service",
		responsible: adminv1.PartyService, usual: 2 * time.Minute, overdueAction: "restore Maestro, or remove the cause of the rejection", outcome: publishedAgain,
	},
	{layerAzure, clusterstatus.IdentityNotFound}: {
		awaits: "identities that do not exist", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action: "create the reported identities", outcome: "Cluster Service checks every 30 seconds and creates the control plane automatically once the identities exist.",
	},
	{layerAzure, clusterstatus.FederatedCredentialLimit}: {
		awaits: "a place for its federated credentials on identities of the data plane", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action:  "delete federated credentials of the reported identities that are not needed, or create the cluster with other identities",
		outcome: "Cluster Service checks every 30 seconds and continues automatically once there is a place.",
	},
	{layerAzure, clusterstatus.StateRequirementsUnmet}: {
		awaits: "virtual machines that Azure cannot create in the customer's subscription", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action:  "raise the quota, request the size from Azure support, or create the node pool with another size or zone",
		outcome: "HyperShift creates the nodes automatically once the cause is gone. Cluster Service checks the quota at least every 3 minutes and the size at least every 13 minutes.",
	},
	{layerAzure, clusterstatus.CredentialRefused}: {
		awaits: "credentials of the identities of its control plane", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action: "make sure that the reported identities exist and are not restricted, or create the cluster with other identities", command: "hcpctl cluster retry {uid} --reason … --ticket …",
		outcome: "Cluster Service tries again at least every 30 seconds during a creation, and at least every hour afterwards. A credential that was issued before stays in use until it expires.",
	},
	{layerAzure, "RetryingOperatorRoles"}: {
		awaits: "the role assignments that the identities of its operators need", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action: "assign the reported roles on the reported scopes", outcome: "Cluster Service checks every 30 seconds and continues automatically once the roles are assigned.",
	},
	{layerAzure, clusterstatus.StateIdentityDeleted}: {
		summary:  "Cluster {name} is ready, but identities that its operators use have not existed {since}.",
		reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action: "create the reported identities again with the same names, and assign their roles", command: "hcpctl cluster retry {uid} --reason … --ticket …",
		outcome: "Cluster Service checks at least every 10 minutes, and then changes the control plane to the new client IDs automatically.",
	},
	{layerAzure, clusterstatus.StateIdentityReadFailing}: {
		summary:  "Cluster {name} is ready, but Cluster Service has not been able to read its identities {since}.",
		reporter: "Cluster Service", responsible: adminv1.PartyService, usual: time.Hour, overdueAction: "find out why Azure rejects the requests, and remove the cause",
		outcome:        "The control plane keeps the client IDs that were read before. Cluster Service retries at least every 10 minutes.",
		overdueCommand: "hcpctl cluster retry {uid} --reason … --ticket …",
	},
	{layerAzure, clusterstatus.StateRenewalFailing}: {
		summary:  "Cluster {name} is ready, but the renewal of its API server's certificate, or of credentials of its control plane, has been failing {since}.",
		reporter: "Cluster Service", responsible: adminv1.PartyService, usual: 48 * time.Hour, overdueAction: "find out what the key vault, its issuer or the data plane of managed identities rejects, and remove the cause",
		outcome:        "What the vault has stays in use until it expires. Cluster Service retries at least every hour.",
		overdueCommand: "hcpctl cluster retry {uid} --reason … --ticket …",
	},
	{layerManagementCluster, clusterstatus.StateWaiting}: {
		awaits: "the agent of {shard}", evidence: agentContact, responsible: adminv1.PartyService, usual: time.Minute, overdueCommand: "hcpctl shard show {shard}",
		likelyCause: "The agent is down, has lost its MQTT connection, or cannot reach its API server.", overdueAction: "restore the agent of {shard}",
		outcome: "The agent catches up automatically; no change is lost.",
	},
	{layerManagementCluster, clusterstatus.StateApplying}: {
		awaits: "the objects on {shard} to match the manifests that were sent", responsible: adminv1.PartyService, usual: time.Minute,
		likelyCause:   "The agent reports that it applied all manifests, but the objects that it read back differ.",
		overdueAction: "check whether another writer changes the HostedCluster or NodePool on {shard}",
	},
	{layerManagementCluster, clusterstatus.StateRemoved}: {
		awaits: "the agent of {shard} to apply objects again that another client removed", responsible: adminv1.PartyService, usual: time.Minute,
		overdueAction: "find out what keeps the agent of {shard} from applying them, and who removed them",
	},
	{layerManagementCluster, clusterstatus.DriftForeignFields}: {
		summary: "Fields of {subject} on {shard} have differed from the manifests {since}.", reporter: "The agent of {shard}", responsible: adminv1.PartySRE,
		action: "find out who set them, and remove them from the object on {shard}; `hcpctl cluster pause` is the way to pause HyperShift", command: mustGather,
		outcome: "The agent never changes fields that no manifest sets. It sets those of the manifests again within 15 minutes. While spec.pausedUntil is set, HyperShift applies no change.",
	},
	// A newer rendering of a resource that has reached its generation is refused. A resource that has not is failed; see applyRefused.
	{layerManagementCluster, clusterstatus.StateRefused}: {
		summary: "{shard} has permanently refused the newest manifests of {subject} {since}. It keeps the manifests before.", reporter: "The API server of {shard}", responsible: adminv1.PartySRE,
		action: checkRefusal, command: mustGather, outcome: waitingDoesNotHelp,
	},
	{layerManagementCluster, clusterstatus.StateApplyFailing}: {
		awaits: "{shard} to accept its manifests", reporter: "The agent", responsible: adminv1.PartyService, usual: time.Minute,
		overdueAction: "remove the cause: the API server of the management cluster rejects the rendered manifests",
		outcome:       "The agent keeps retrying and recovers automatically.",
	},
	{layerManagementCluster, clusterstatus.StateRemoving}: {
		awaits: "the HostedCluster on {shard} to drop it", responsible: adminv1.PartyService, usual: time.Minute,
		overdueAction: "find out why the HostedCluster on {shard} does not accept the change",
	},
	{layerManagementCluster, clusterstatus.StateRemovingRequests}: {
		awaits: "the requests of pending and canceled credentials to be removed from {shard}", responsible: adminv1.PartyService, usual: time.Minute,
		likelyCause:   "A request that is signed now would outlive the revocation, so the revocation waits until the agent confirms their removal.",
		overdueAction: checkAgent, outcome: "Then the control plane replaces the signer.",
	},
	{layerControlPlane, clusterstatus.StateAwaitingRevocation}: {
		awaits: "the end of a revocation that replaces the signer", responsible: adminv1.PartyService, usual: 10 * time.Minute,
		overdueAction: "read what the revocation waits for", outcome: "It continues automatically.",
	},
	{layerControlPlane, clusterstatus.StateAwaitingRestart}: {
		awaits: "Cluster Service to render the HostedCluster with a restart of its control plane, which ends the requests in progress", responsible: adminv1.PartySRE,
		action: "correct what Cluster Service cannot render; its log has the error", outcome: "The API server already rejects the revoked certificates.",
	},
	{layerControlPlane, clusterstatus.StateRollingOut}: {
		awaits: "its control plane to roll out its release", evidence: versions, responsible: adminv1.PartyService, usual: time.Hour,
		overdueAction: checkRollout, command: upgradeStatus, overdueCommand: upgradeStatus,
	},
	{layerControlPlane, clusterstatus.StateAwaitingSecret}: {
		awaits: "a Secret that only the customer can create", evidence: awaitedSecrets, responsible: adminv1.PartyCustomer,
		action:  "create the Secret in the cluster, with the client secret of the identity provider",
		outcome: "The cluster already accepts tokens of the issuer. The sign-in of the component works once the Secret exists.",
	},
	{layerControlPlane, clusterstatus.StateIssuerRefused}: {
		summary:  "The {noun} {name} is configured, but the cluster's control plane has not been permitted to connect to its issuer {since}.",
		reporter: "The egress proxy of {shard}", responsible: adminv1.PartyCustomer,
		action:  "use an issuer with a public address at port 443, or correct its DNS records",
		outcome: "The control plane keeps retrying. It accepts tokens only with keys that it has read before.",
	},
	{layerControlPlane, clusterstatus.StateIssuerUnreachable}: {
		summary:  "The {noun} {name} is configured, but the cluster's control plane has not been able to connect to its issuer {since}.",
		reporter: "The egress proxy of {shard}", responsible: adminv1.PartyCustomer,
		action:  "check that the name of the issuer resolves and that it accepts connections from the internet at port 443",
		outcome: "The control plane keeps retrying. It accepts tokens only with keys that it has read before.",
	},
	{layerControlPlane, clusterstatus.StateWaitingForControlPlane}: {
		awaits: "the first start of the cluster's control plane", responsible: adminv1.PartyService, outcome: "It is sent once the cluster is ready.",
	},
	{layerControlPlane, clusterstatus.StateSigning}: {
		awaits: "the control plane to sign the certificate", responsible: adminv1.PartyService, usual: time.Minute,
		overdueAction: "check the CertificateSigningRequest on {shard}: its approval, and HyperShift's signer",
	},
	{layerControlPlane, clusterstatus.StateWaiting}: {
		awaits: "HyperShift's first report about its control plane", responsible: adminv1.PartyService, usual: 5 * time.Minute,
		likelyCause: operatorIdle, overdueAction: checkOperator, command: watch,
	},
	{layerNodePool, clusterstatus.StateWaitingForNodes}: {
		awaits: "its nodes", evidence: nodes, responsible: adminv1.PartyAzure, usual: 20 * time.Minute,
		likelyCause:   "The usual causes are the customer's quota, a subnet without free addresses, and machines that cannot reach the control plane.",
		overdueAction: "check the machines on {shard}", command: watch,
	},
	{layerControlPlane, clusterstatus.StateReconciling}: {
		awaits: "HyperShift to act on the desired state on {shard}", responsible: adminv1.PartyService, usual: 2 * time.Minute,
		likelyCause: operatorIdle, overdueAction: checkOperator, command: watch,
	},
	{layerControlPlane, clusterstatus.StateReconciliationFailing}: {
		awaits: "HyperShift to apply the desired state on {shard}", reporter: hyperShift, responsible: adminv1.PartyService, usual: 5 * time.Minute,
		overdueAction: "remove the cause that HyperShift reports", outcome: hyperShiftRetry,
	},
	{layerControlPlane, clusterstatus.EncryptionKeyInvalid}: {
		awaits: "the customer's encryption key to be usable", reporter: hyperShift, responsible: adminv1.PartyCustomer,
		action:  "check the key, its version and the access policy of the key vault; keep the previous version enabled meanwhile",
		outcome: "HyperShift keeps retrying, and the update then completes automatically.",
	},
	{layerControlPlane, clusterstatus.StateEncryptionKeyRotation}: keyRotation,
	{layerNodePool, clusterstatus.StateReconciling}: {
		awaits: "HyperShift to act on the desired state on {shard}", responsible: adminv1.PartyService, usual: 2 * time.Minute,
		likelyCause: operatorIdle, overdueAction: checkOperator, command: watch,
	},
	{layerNodePool, clusterstatus.StateAutoscaling}: {
		awaits: "HyperShift to act on the change", evidence: entryMessage, responsible: adminv1.PartyService, usual: 5 * time.Minute, overdueAction: checkOperator,
	},
	{layerNodePool, clusterstatus.StateAutoRepair}: {
		awaits: "HyperShift to act on the change", evidence: entryMessage, responsible: adminv1.PartyService, usual: 5 * time.Minute, overdueAction: checkOperator,
	},
	{layerNodePool, clusterstatus.StateUnsupportedVersionSkew}: {
		awaits: "its control plane to run a version that its nodes may follow", reporter: hyperShift, responsible: adminv1.PartySRE,
		action: "upgrade the control plane first, and find out how the versions diverged",
	},
	{layerNodePool, clusterstatus.StateInvalidReleaseImage}: {
		awaits: "a release that HyperShift can use", reporter: hyperShift, responsible: adminv1.PartySRE,
		action: "find out why {shard} cannot look up the release: the image, the pull secret, or the registry", command: mustGather,
	},
	{layerNodePool, clusterstatus.StateReplacingNodes}: {
		awaits: "its nodes to be replaced", reporter: "Cluster Service", responsible: adminv1.PartyService, usual: 2 * time.Hour,
		likelyCause: drainBlocked, overdueAction: checkDrain, command: watch,
	},
	{layerNodePool, clusterstatus.StateScalingDown}: {
		awaits: "surplus nodes to be removed", reporter: "Cluster Service", responsible: adminv1.PartyService, usual: 30 * time.Minute,
		likelyCause: drainBlocked, overdueAction: checkDrain, command: watch,
	},
	{layerNodePool, clusterstatus.StateNodesUnhealthy}: {
		awaits: "its nodes to report again", reporter: "Cluster Service", responsible: adminv1.PartyCustomer,
		action:  "check the machines and their network; auto-repair replaces them, unless more than two are unhealthy",
		outcome: "A node that reports again needs no further action.",
	},
	{layerUpgrade, clusterstatus.StateAwaitingAcknowledgement}: {
		awaits: "an acknowledgement of its upgrade", evidence: upgradeGates, responsible: adminv1.PartySRE,
		action: "acknowledge the gate if the customer agrees, or abort the upgrade", command: "hcpctl upgrade ack {uid} {gate} --reason … --ticket …",
		outcome: upgradeUnmoved,
	},
	{layerUpgrade, clusterstatus.StateWaiting}: {
		awaits: "a gate of its upgrade", evidence: upgradeGates, responsible: adminv1.PartyService, command: upgradeStatus, outcome: upgradeUnmoved,
	},
	{layerUpgrade, clusterstatus.StatePaused}: {
		awaits: "its upgrade to be resumed", evidence: upgradeGates, responsible: adminv1.PartySRE,
		action: "resume the upgrade, or abort it", command: "hcpctl upgrade resume {uid} --reason … --ticket …",
		outcome: "Until then no new step starts; started steps continue.",
	},
	{layerUpgrade, clusterstatus.StateControlPlane}: {
		awaits: "its control plane to roll out the release of its upgrade", evidence: upgradeRollout, responsible: adminv1.PartyService, usual: time.Hour,
		overdueAction: checkRollout, command: upgradeStatus, overdueCommand: upgradeStatus,
		outcome: "The cluster stays available meanwhile. A control plane cannot return to its previous release.",
	},
	{layerUpgrade, clusterstatus.StateNodePools}: {
		awaits: "its node pools to follow the upgrade of its control plane", evidence: entryMessage, responsible: adminv1.PartyService, usual: 6 * time.Hour,
		overdueAction: "find the node pool that makes no progress", command: upgradeStatus,
	},
	{layerNodePool, clusterstatus.StateUpdatingVersion}: {
		awaits: "its nodes to be replaced by nodes of the new version", reporter: hyperShift, evidence: nodes, responsible: adminv1.PartyService, usual: 2 * time.Hour,
		likelyCause: drainBlocked, overdueAction: checkDrain, command: watch,
	},
	{layerControlPlane, "ReadOnlyRolloutInProgress"}: keyRotation,
	{layerControlPlane, "ReEncryptionWaitingForKAS"}: keyRotation,
	{layerControlPlane, "WritePromotionInProgress"}:  keyRotation,
	{layerControlPlane, "ReEncryptionInProgress"}:    keyRotation,
}

// unknownState begins the action for a state that neither waits nor unlisted knows.
const unknownState = "the state is unknown to this release: check all layers"

// unlisted explains a state that waits does not hold: one of another system, or of a newer Cluster Service.
func (s *subject) unlisted(entry *csv1.LayerProgress) wait {
	switch {
	case entry.GetLayer() == layerAzure && strings.HasPrefix(entry.GetState(), "Retrying"):
		return wait{
			awaits: "Azure to create or delete one of its resources", reporter: "Cluster Service", responsible: adminv1.PartyAzure, usual: 15 * time.Minute,
			overdueAction: "find out what Azure rejects and why", outcome: publishedAgain,
		}
	case entry.GetLayer() == layerAzure:
		return wait{awaits: "its resources in Azure", reporter: "Cluster Service", responsible: adminv1.PartyAzure, usual: 15 * time.Minute,
			overdueAction: "search the log of Cluster Service for its steps in Azure"}
	case entry.GetLayer() == layerControlPlane && s.phase == phaseReady && s.condition("Available").GetStatus() != "True":
		return wait{
			summary: "Cluster {name} is ready, but its control plane has not been available {since}.", reporter: hyperShift, responsible: adminv1.PartySRE,
			action:  "the customer's API server may not respond; check the control plane's pods and etcd on {shard}",
			outcome: "The phase stays Ready. No other action is needed once the control plane is available again.", command: mustGather,
		}
	case entry.GetLayer() == layerControlPlane && strings.HasPrefix(entry.GetState(), "Awaiting"):
		return wait{
			awaits: "the control plane to replace the signer of its class", reporter: hyperShift, responsible: adminv1.PartyService, usual: time.Minute,
			overdueAction: "check the CertificateRevocationRequest on {shard}", outcome: "Requests for credentials of the class are rejected until this is done.",
		}
	case entry.GetLayer() == layerControlPlane:
		return wait{
			awaits: "its control plane", reporter: hyperShift, responsible: adminv1.PartyService, usual: 20 * time.Minute,
			overdueAction: "check the control plane's pods on {shard}, the reported ones first", command: watch,
		}
	}
	return wait{
		awaits: "the layer " + entry.GetLayer(), reporter: "The layer", responsible: adminv1.PartyService, usual: 20 * time.Minute, overdueAction: unknownState,
	}
}

// entryMessage returns the message of the awaited entry.
func entryMessage(s *subject) []adminv1.Sentence {
	return []adminv1.Sentence{sentence(adminv1.SentenceReport, s.awaited().GetMessage())}
}

// activeUpgrade returns the upgrade in progress; nil if there is none.
func (f *facts) activeUpgrade() *csv1.Upgrade {
	for _, u := range f.upgrades {
		switch u.GetStatus().GetState() {
		case csv1.UpgradeState_UPGRADE_STATE_WAITING, csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
			return u
		}
	}
	return nil
}

// gate returns the name of the first gate that an SRE can acknowledge; empty if there is none.
func (f *facts) gate() string {
	for _, gate := range f.activeUpgrade().GetStatus().GetGates() {
		if gate.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && gate.GetCanBeAcknowledged() {
			return gate.GetName()
		}
	}
	return ""
}

// upgradeRollout returns the upgrade in progress and how far the control plane is.
func upgradeRollout(s *subject) []adminv1.Sentence { return append(upgradeGates(s), s.rollout()...) }

// upgradeGates returns the upgrade in progress and the gates that it has not passed.
func upgradeGates(s *subject) []adminv1.Sentence {
	u := s.activeUpgrade()
	if u == nil {
		return entryMessage(s)
	}
	text := fmt.Sprintf("Upgrade %s goes from %s to %s", u.GetUid(), u.GetStatus().GetFromVersion(), u.GetSpec().GetVersion())
	if requester := u.GetSpec().GetActor().GetName(); requester != "" {
		text += fmt.Sprintf("; %s requested it (%s)", requester, u.GetSpec().GetActor().GetReason())
	}
	sentences := []adminv1.Sentence{sentence(adminv1.SentenceUpgrade, text+".")}
	if by := u.GetStatus().GetPausedBy(); u.GetStatus().GetPaused() && by != nil {
		sentences = append(sentences, sentence(adminv1.SentenceUpgradePaused, fmt.Sprintf("%s paused it (%s).", by.GetName(), by.GetReason())))
	}
	for _, gate := range u.GetStatus().GetGates() {
		if gate.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING {
			sentences = append(sentences, sentence(adminv1.SentenceUpgradeGate, fmt.Sprintf("Gate %s: %s", gate.GetName(), gate.GetMessage())))
		}
	}
	return sentences
}

// shardCapacity returns how full every shard is.
func shardCapacity(s *subject) []adminv1.Sentence {
	var shards []string
	for _, shard := range s.shards {
		text := fmt.Sprintf("%s holds %d of %d clusters", shard.GetName(), shard.GetClusters(), shard.GetCapacity())
		switch {
		case shard.GetState() == csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING:
			text += " and is draining"
		case shard.GetCordoned():
			text += " and is cordoned"
		}
		if by := shard.GetStateActor(); shard.GetCordoned() && by != nil {
			text += " by " + by.GetName() + " (" + by.GetReason() + ")"
		}
		if shard.GetAgentSilent() {
			text += ", and its agent does not respond"
		}
		shards = append(shards, text)
	}
	if len(shards) == 0 {
		return []adminv1.Sentence{sentence(adminv1.SentenceShardCapacity, "The region has no provision shard.")}
	}
	return []adminv1.Sentence{sentence(adminv1.SentenceShardCapacity, "Provision shards: "+join(shards)+".")}
}

// agentContact returns what is known to work on the way to the management cluster, and the last contact with its agent.
func agentContact(s *subject) []adminv1.Sentence {
	sentences := []adminv1.Sentence{sentence(adminv1.SentenceManifestsAccepted, "Maestro has the manifests; the agent has not reported that it applied them.")}
	for _, shard := range s.shards {
		if shard.GetName() != s.cluster.GetStatus().GetProvisionShard() {
			continue
		}
		sentences = append(sentences, s.heartbeat(shard)...)
		if contact := asTime(shard.GetLastHeardTime()); !contact.IsZero() {
			text := "The agent last reported on any cluster of {shard} " + duration(s.now.Sub(contact)) + " ago, at " + s.clock(contact) + "."
			sentences = append(sentences, sentenceAt(adminv1.SentenceAgentContact, s.fill(text), contact))
		}
	}
	return sentences
}

// versions returns the versions between which the control plane moves, and its rollout.
func versions(s *subject) []adminv1.Sentence {
	var sentences []adminv1.Sentence
	if running := s.cluster.GetStatus().GetActiveVersions(); len(running) > 1 {
		sentences = append(sentences, sentence(adminv1.SentenceVersions, fmt.Sprintf("The control plane is moving from %s to %s.", running[len(running)-1], running[0])))
	}
	return append(sentences, s.rollout()...)
}

func awaitedSecrets(s *subject) []adminv1.Sentence {
	var sentences []adminv1.Sentence
	for _, secret := range s.secrets {
		sentences = append(sentences, sentence(adminv1.SentenceAwaitedSecret, fmt.Sprintf("Component %s in namespace %s has a confidential client; its client secret is expected in Secret %s/%s, key %s.",
			secret.GetComponentName(), secret.GetComponentNamespace(), secret.GetNamespace(), secret.GetName(), secret.GetKey())))
	}
	return sentences
}

// nodes returns how many nodes exist, and what HyperShift reports about machines and nodes.
func nodes(s *subject) []adminv1.Sentence {
	var sentences []adminv1.Sentence
	if entry := s.awaited(); entry.GetState() == clusterstatus.StateWaitingForNodes {
		sentences = append(sentences, sentence(adminv1.SentenceReport, entry.GetMessage()))
	}
	for _, name := range []string{"AllMachinesReady", "AllNodesHealthy", "Ready"} {
		if c := s.condition(name); c.GetStatus() == "False" {
			return append(sentences, report(s.fill(hyperShift), c.GetMessage(), c.GetReason())...)
		}
	}
	return sentences
}
