package explanation

import (
	"fmt"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The layers of progress, as Cluster Service names them, and what else keeps a resource waiting.
const (
	layerPlacement         = "placement"
	layerMaestro           = "maestro"
	layerManagementCluster = "management-cluster"
	layerControlPlane      = "control-plane"
	layerNodePool          = "node-pool"
	layerAzure             = "azure"
	layerUpgrade           = "upgrade"
	layerPaused            = "paused"
	// layerCosmos is the name of Cosmos DB among the silent.
	layerCosmos         = "cosmos"
	layerClusterService = "cluster-service"
)

// wait is what a state of a layer means to people. Texts may hold {shard}, {cluster}, {asked}, {scope}, {uid}, {name}, {noun},
// {component} and {subject}.
type wait struct {
	// awaits completes `has been waiting for`.
	awaits string
	// speaker is whose message the entry has, without the words of strip; empty leaves it out. evidence has more of it.
	speaker, strip string
	evidence       func(s *subject) []string
	// headline replaces the first sentence up to its time; {since} stands for that.
	headline string
	// who has to act until usual is over, which is how long it takes at most when all is well; and what, for people. Without
	// usual it stays so.
	who   Party
	usual time.Duration
	what  string
	// suspicion is what is probably wrong from then on, in a sentence, and stuck what an SRE has to do about it.
	suspicion, stuck string
	// next is what happens when it is over.
	next                  string
	command, stuckCommand string
}

const (
	watch      = "hcpctl cluster watch {cluster}{scope}"
	mustGather = "hcpctl must-gather {asked}"
	platform   = "HyperShift on {shard}"
)

// rotating is the rotation of the key that etcd's data is encrypted with, whichever step it is at.
var rotating = wait{
	awaits: "all of etcd's data to be encrypted with the new version of the key", speaker: platform, who: Service, usual: time.Hour,
	stuck: "look at the API servers and the migrations on {shard}", command: watch,
	next: "Until it is done the version of the key before must stay enabled",
}

// waits are the states that are known; inGeneral explains the others.
var waits = map[[2]string]wait{
	{layerPlacement, "WaitingForCapacity"}: {
		awaits: "a provision shard with room", evidence: room, who: SRE,
		what: "uncordon a shard, raise a capacity, or add a management cluster", command: "hcpctl shard explain {uid}",
		next: "As soon as there is room the service places the cluster by itself, the oldest that waits first",
	},
	{layerPlacement, "WaitingForCluster"}: {
		awaits: "its cluster to be placed", who: Service,
		next: "It follows its cluster at once",
	},
	{layerMaestro, "Publishing"}: {
		awaits: "Cluster Service to hand its manifests to Maestro", who: Service, usual: time.Minute,
		suspicion: "Cluster Service has them and does not publish them.", stuck: "see what its log says of “publishing”, and whether it is ready",
	},
	{layerMaestro, "Retrying"}: {
		awaits: "Maestro to take its manifests", speaker: "Cluster Service", strip: "Publishing failed and is tried again: ",
		who: Service, usual: 2 * time.Minute,
		stuck: "bring Maestro back, or let it take what it refuses",
		next:  "Cluster Service tries again every 30 seconds, and goes on by itself when Maestro takes it",
	},
	{layerAzure, "RetryingOperatorRoles"}: {
		awaits: "the identities of its operators to have the roles that they need", speaker: "Cluster Service", who: Customer,
		what: "grant the roles that are named, on what is named",
		next: "Cluster Service looks every 30 seconds, and goes on by itself when they are there",
	},
	{layerAzure, "RenewalFailing"}: {
		headline: "Cluster {name} is ready, but the certificate of its API server could not be renewed {since}.", speaker: "Cluster Service",
		who: Service, usual: 48 * time.Hour, stuck: "see what the vault or its issuer refuses, and remove the cause",
		next:         "The certificate that is there serves on until it ends, and Cluster Service goes on trying, at least every hour",
		stuckCommand: "hcpctl cluster retry {uid} --reason … --ticket …",
	},
	{layerManagementCluster, "Waiting"}: {
		awaits: "the agent of {shard}", evidence: agentAway, who: Service, usual: time.Minute, stuckCommand: "hcpctl shard show {shard}",
		suspicion: "The agent is down, then, or has lost MQTT, or cannot reach its API server.", stuck: "bring the agent of {shard} back",
		next: "It catches up by itself, and nothing is lost meanwhile",
	},
	{layerManagementCluster, "Applying"}: {
		awaits: "{shard} to carry it as it was sent", who: Service, usual: time.Minute,
		suspicion: "The agent says that it applied everything, and what was read back is not what was sent.",
		stuck:     "see whether somebody else changes the HostedCluster or NodePool on {shard}",
	},
	{layerManagementCluster, "ApplyFailing"}: {
		awaits: "{shard} to accept its manifests", speaker: "The agent", who: Service, usual: time.Minute,
		stuck: "remove the cause; the management cluster refuses what was rendered",
		next:  "The agent goes on trying, so that it heals by itself then",
	},
	{layerManagementCluster, "Removing"}: {
		awaits: "{shard} to carry the cluster without it", who: Service, usual: time.Minute,
		stuck: "see why the HostedCluster on {shard} does not take the change",
	},
	{layerManagementCluster, "RemovingRequests"}: {
		awaits: "the requests of cancelled credentials to be gone from {shard}", who: Service, usual: time.Minute,
		suspicion: "A request that were signed now would outlive the revocation, so it waits until the agent has confirmed that they are gone.",
		stuck:     "see whether the agent of {shard} works",
		next:      "Then the control plane replaces the signer",
	},
	{layerControlPlane, "RollingOut"}: {
		awaits: "its control plane to roll out its release", evidence: versions, who: Service, usual: time.Hour,
		stuck: "see why {component} on {shard} does not complete its rollout", command: "hcpctl upgrade status {uid}", stuckCommand: "hcpctl upgrade status {uid}",
	},
	{layerControlPlane, "AwaitingSecret"}: {
		awaits: "a secret that only the customer has", evidence: awaitedSecrets, who: Customer,
		what: "create that Secret inside the cluster, with the client's secret from their identity provider",
		next: "Tokens of the issuer are accepted already; the sign-in of that component works as soon as the secret is there, and nothing else has to be done",
	},
	{layerControlPlane, "WaitingForControlPlane"}: {
		awaits: "the cluster's control plane to be up for the first time", who: Service,
		next: "It is sent as soon as the cluster is ready",
	},
	{layerControlPlane, "Signing"}: {
		awaits: "the control plane to sign the certificate", who: Service, usual: time.Minute,
		stuck: "look at the CertificateSigningRequest on {shard}: its approval, and HyperShift's signer",
	},
	{layerControlPlane, "Waiting"}: {
		awaits: "HyperShift's first word on its control plane", who: Service, usual: 5 * time.Minute,
		suspicion: "HyperShift's operator does not look after it.", stuck: "see whether the operator on {shard} runs", command: watch,
	},
	{layerNodePool, "WaitingForNodes"}: {
		awaits: "its nodes", evidence: nodes, who: Azure, usual: 20 * time.Minute,
		suspicion: "The usual causes are the customer's quota, a subnet without addresses, and machines that cannot reach the control plane.",
		stuck:     "look at the machines on {shard}", command: watch,
	},
	{layerControlPlane, "Reconciling"}: {
		awaits: "HyperShift to act on what {shard} carries", who: Service, usual: 2 * time.Minute,
		suspicion: "HyperShift's operator does not look after it.", stuck: "see whether the operator on {shard} runs", command: watch,
	},
	{layerControlPlane, "ReconciliationFailing"}: {
		awaits: "HyperShift to succeed with what {shard} carries", speaker: platform, who: Service, usual: 5 * time.Minute,
		stuck: "remove the cause that HyperShift names", next: "HyperShift goes on trying",
	},
	{layerControlPlane, "EncryptionKeyInvalid"}: {
		awaits: "the customer's encryption key to be usable", speaker: platform, who: Customer,
		what: "look at the key, its version and the access policy of the key vault; the version before must stay enabled meanwhile",
		next: "HyperShift goes on trying, and the update is done by itself then",
	},
	{layerControlPlane, "EncryptionKeyRotation"}: rotating,
	{layerNodePool, "Reconciling"}: {
		awaits: "HyperShift to act on what {shard} carries", who: Service, usual: 2 * time.Minute,
		suspicion: "HyperShift's operator does not look after it.", stuck: "see whether the operator on {shard} runs", command: watch,
	},
	{layerNodePool, "Autoscaling"}: {
		awaits: "HyperShift to act on the change", evidence: itself, who: Service, usual: 5 * time.Minute, stuck: "see whether the operator on {shard} runs",
	},
	{layerNodePool, "AutoRepair"}: {
		awaits: "HyperShift to act on the change", evidence: itself, who: Service, usual: 5 * time.Minute, stuck: "see whether the operator on {shard} runs",
	},
	{layerNodePool, "UnsupportedVersionSkew"}: {
		awaits: "its control plane to run a version that its nodes may follow", speaker: platform, who: SRE,
		what: "upgrade the control plane first, or find out who let the versions apart",
	},
	{layerNodePool, "InvalidReleaseImage"}: {
		awaits: "a release that HyperShift can use", speaker: platform, who: SRE,
		what: "see why {shard} cannot look up the release: the image, the pull secret, or the registry", command: mustGather,
	},
	{layerNodePool, "ReplacingNodes"}: {
		awaits: "its nodes to be replaced", speaker: "Cluster Service", who: Service, usual: 2 * time.Hour,
		suspicion: "Without a drain timeout, a pod disruption budget of the customer's can hold a node for ever.",
		stuck:     "see which node does not drain, and tell the customer", command: watch,
	},
	{layerNodePool, "ScalingDown"}: {
		awaits: "nodes that are too many to leave", speaker: "Cluster Service", who: Service, usual: 30 * time.Minute,
		suspicion: "Without a drain timeout, a pod disruption budget of the customer's can hold a node for ever.",
		stuck:     "see which node does not drain, and tell the customer", command: watch,
	},
	{layerNodePool, "NodesUnhealthy"}: {
		awaits: "its nodes to report again", speaker: "Cluster Service", who: Customer,
		what: "look at the machines and their network; with auto-repair they are replaced, unless there are more than two",
		next: "A node that reports again is taken as it is",
	},
	{layerUpgrade, "AwaitingAcknowledgement"}: {
		awaits: "somebody to agree to its upgrade", evidence: gates, who: SRE,
		what: "acknowledge the gate if the customer agrees, or abort the upgrade", command: "hcpctl upgrade ack {uid} {gate} --reason … --ticket …",
		next: "It runs on as it is meanwhile; when the last gate is passed the upgrade begins by itself",
	},
	{layerUpgrade, "Waiting"}: {
		awaits: "a gate of its upgrade", evidence: gates, who: Service, command: "hcpctl upgrade status {uid}",
		next: "It runs on as it is meanwhile; when the last gate is passed the upgrade begins by itself",
	},
	{layerUpgrade, "Paused"}: {
		awaits: "its upgrade to be resumed", evidence: gates, who: SRE,
		what: "resume the upgrade, or abort it", command: "hcpctl upgrade resume {uid} --reason … --ticket …", next: "Nothing new of it is begun until then; what has begun goes on",
	},
	{layerUpgrade, "ControlPlane"}: {
		awaits: "its control plane to roll out the release of its upgrade", evidence: rollingOut, who: Service, usual: time.Hour,
		stuck: "see why {component} on {shard} does not complete its rollout", command: "hcpctl upgrade status {uid}", stuckCommand: "hcpctl upgrade status {uid}",
		next: "It stays ready for its customer meanwhile; a release that a control plane was given cannot be taken back",
	},
	{layerUpgrade, "NodePools"}: {
		awaits: "its node pools to follow its control plane's upgrade", evidence: itself, who: Service, usual: 6 * time.Hour,
		stuck: "see which node pool does not get on", command: "hcpctl upgrade status {uid}",
	},
	{layerNodePool, "UpdatingVersion"}: {
		awaits: "its nodes to be replaced by ones of the new version", speaker: platform, evidence: nodes, who: Service, usual: 2 * time.Hour,
		suspicion: "Without a drain timeout, a pod disruption budget of the customer's can hold a node for ever.",
		stuck:     "see which node does not drain, and tell the customer", command: watch,
	},
	{layerControlPlane, "ReadOnlyRolloutInProgress"}: rotating,
	{layerControlPlane, "ReEncryptionWaitingForKAS"}: rotating,
	{layerControlPlane, "WritePromotionInProgress"}:  rotating,
	{layerControlPlane, "ReEncryptionInProgress"}:    rotating,
}

// done says that an entry is what it should be when nothing is left to do.
func done(p *csv1.LayerProgress) bool {
	switch p.GetLayer() {
	case layerPlacement:
		return p.GetState() == "Placed"
	case layerAzure:
		return p.GetState() == "Ready" || p.GetState() == "Deleted"
	case layerMaestro:
		return p.GetState() == "Published"
	case layerManagementCluster:
		return p.GetState() == "Applied" || p.GetState() == "Deleted"
	case layerControlPlane:
		return p.GetState() == "Available" || p.GetState() == "Configured"
	case layerNodePool:
		return p.GetState() == "Ready"
	}
	return false
}

// inGeneral explains a state that is not in the table: that of another system, or of a newer Cluster Service.
func (s *subject) inGeneral(entry *csv1.LayerProgress) wait {
	switch {
	case entry.GetLayer() == layerAzure && strings.HasPrefix(entry.GetState(), "Retrying"):
		return wait{
			awaits: "Azure to make or remove one of its resources", speaker: "Cluster Service", who: Azure, usual: 15 * time.Minute,
			stuck: "see what Azure refuses and why", next: "Cluster Service tries again every 30 seconds, and goes on by itself when Azure takes it",
		}
	case entry.GetLayer() == layerAzure:
		return wait{awaits: "its resources in Azure", speaker: "Cluster Service", who: Azure, usual: 15 * time.Minute,
			stuck: "see what Cluster Service's log says of its steps in Azure"}
	case entry.GetLayer() == layerControlPlane && s.phase == phaseReady && s.condition("Available").GetStatus() != "True":
		return wait{
			headline: "Cluster {name} is ready, but its control plane has not been available {since}.", speaker: platform, who: SRE,
			what: "the customer's API server may not answer; look at the control plane's pods and etcd on {shard}",
			next: "The phase stays Ready, and when the control plane is available again nothing else has to be done", command: mustGather,
		}
	case entry.GetLayer() == layerControlPlane && strings.HasPrefix(entry.GetState(), "Awaiting"):
		return wait{
			awaits: "the control plane to replace the signer of its class", speaker: platform, who: Service, usual: time.Minute,
			stuck: "look at the CertificateRevocationRequest on {shard}", next: "Credentials of the class are refused until it is through",
		}
	case entry.GetLayer() == layerControlPlane:
		return wait{
			awaits: "its control plane", speaker: platform, who: Service, usual: 20 * time.Minute,
			stuck: "look at the control plane's pods on {shard}, those first that are named here", command: watch,
		}
	}
	return wait{
		awaits: "the layer " + entry.GetLayer(), speaker: "It", who: Service, usual: 20 * time.Minute,
		stuck: "this state is not one that I know, so look at everything there is",
	}
}

// itself is the entry's own message.
func itself(s *subject) []string { return []string{s.awaited().GetMessage()} }

// moving is the upgrade under way; nil when there is none.
func (f *Facts) moving() *csv1.Upgrade {
	for _, u := range f.Upgrades {
		switch u.GetStatus().GetState() {
		case csv1.UpgradeState_UPGRADE_STATE_WAITING, csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
			return u
		}
	}
	return nil
}

// gate is the first of the upgrade's that waits for somebody.
func (f *Facts) gate() string {
	for _, gate := range f.moving().GetStatus().GetGates() {
		if gate.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && gate.GetCanBeAcknowledged() {
			return gate.GetName()
		}
	}
	return ""
}

// rollingOut says what upgrade is under way and how far the control plane is with it.
func rollingOut(s *subject) []string { return append(gates(s), s.rollout()...) }

// gates says which gates of the upgrade under way are not passed.
func gates(s *subject) []string {
	u := s.moving()
	if u == nil {
		return itself(s)
	}
	text := fmt.Sprintf("The upgrade %s goes from %s to %s", u.GetUid(), u.GetStatus().GetFromVersion(), u.GetSpec().GetVersion())
	if by := u.GetSpec().GetActor().GetName(); by != "" {
		text += fmt.Sprintf(", asked for by %s (%s)", by, u.GetSpec().GetActor().GetReason())
	}
	list := []string{text + "."}
	if by := u.GetStatus().GetPausedBy(); u.GetStatus().GetPaused() && by != nil {
		list = append(list, fmt.Sprintf("%s paused it (%s).", by.GetName(), by.GetReason()))
	}
	for _, gate := range u.GetStatus().GetGates() {
		if gate.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING {
			list = append(list, fmt.Sprintf("Gate %s: %s", gate.GetName(), gate.GetMessage()))
		}
	}
	return list
}

// room says why there is none, and how full every shard is.
func room(s *subject) []string {
	var list []string
	if message := s.awaited().GetMessage(); message != "Waiting for a provision shard with room." {
		list = append(list, message)
	}
	var shards []string
	for _, shard := range s.Shards {
		text := fmt.Sprintf("%s holds %d of %d clusters", shard.GetName(), shard.GetClusters(), shard.GetCapacity())
		switch {
		case shard.GetState() == csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING:
			text += " and is being drained"
		case shard.GetCordoned():
			text += " and is cordoned"
		}
		if by := shard.GetStateActor(); shard.GetCordoned() && by != nil {
			text += " by " + by.GetName() + " (" + by.GetReason() + ")"
		}
		if shard.GetAgentSilent() {
			text += ", and its agent does not answer"
		}
		shards = append(shards, text)
	}
	if len(shards) == 0 {
		return append(list, "There is no provision shard at all.")
	}
	return append(list, "Of the shards, "+and(shards)+".")
}

// agentAway says what of the way to the management cluster is known to work, and whether the agent answers anybody.
func agentAway(s *subject) []string {
	list := []string{"Maestro has its manifests; the agent has not said that it applied them."}
	for _, shard := range s.Shards {
		if shard.GetName() != s.Cluster.GetStatus().GetProvisionShard() {
			continue
		}
		if heard := when(shard.GetLastHeardTime()); !heard.IsZero() {
			list = append(list, s.fill("It was last heard of "+lasting(s.Now.Sub(heard))+" ago, at "+s.clock(heard)+", about any cluster on {shard}."))
		}
	}
	return list
}

func versions(s *subject) []string {
	var list []string
	if running := s.Cluster.GetStatus().GetActiveVersions(); len(running) > 1 {
		list = append(list, fmt.Sprintf("It is on the way from %s to %s.", running[len(running)-1], running[0]))
	}
	return append(list, s.rollout()...)
}

func awaitedSecrets(s *subject) []string {
	var list []string
	for _, secret := range s.secrets {
		list = append(list, fmt.Sprintf("The client of %s in namespace %s is confidential, and its secret is looked for in Secret %s/%s, key %s.",
			secret.GetComponentName(), secret.GetComponentNamespace(), secret.GetNamespace(), secret.GetName(), secret.GetKey()))
	}
	return list
}

// nodes says what HyperShift says of a pool's machines and nodes, and how many there are.
func nodes(s *subject) []string {
	var list []string
	if entry := s.awaited(); entry.GetState() == "WaitingForNodes" {
		list = append(list, entry.GetMessage())
	}
	for _, name := range []string{"AllMachinesReady", "AllNodesHealthy", "Ready"} {
		if c := s.condition(name); c.GetStatus() == "False" {
			list = append(list, said(s.fill(platform), c.GetMessage(), c.GetReason()))
			break
		}
	}
	return list
}
