package adminv1

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Action declares an action that an SRE can request. Admin's routes and OpenAPI document, the signed intent, the backend's calls of Cluster Service, and the
// requests of hcpctl and of the portal are derived from it.
type Action struct {
	// Name is the name of the action and of its route.
	Name string
	// Class is the lowest class of an elevation that permits the action. Parameters may need a higher class: see Level.Class.
	Class AccessClass
	// Method and Path are those of the route. Path is below Root, and has {name} wildcards. Both are empty if a route of another kind creates the operations.
	Method, Path string
	// Summary describes the route in the OpenAPI document.
	Summary string
	// Body is a value of the type of the request's body; nil if there is none: admin refuses a request with one.
	Body any
	// RPC executes the action. Its request is the parameters of the action. It is nil if the backend executes the action otherwise.
	RPC *RPC
}

// RPC is a method of Cluster Service.
type RPC struct {
	// New returns an empty request.
	New func() proto.Message
	// Call sends a request of the type that New returns.
	Call func(ctx context.Context, client csv1.ClusterServiceClient, request proto.Message) (proto.Message, error)
}

func rpc[Q, A proto.Message](method func(csv1.ClusterServiceClient, context.Context, Q, ...grpc.CallOption) (A, error)) *RPC {
	return &RPC{
		New: func() proto.Message { return Message[Q]{}.Of.ProtoReflect().New().Interface() },
		Call: func(ctx context.Context, client csv1.ClusterServiceClient, request proto.Message) (proto.Message, error) {
			return method(client, ctx, request.(Q))
		},
	}
}

// Method returns the full name of the gRPC method. The name of its request is that of the method and Request.
func (r *RPC) Method() string {
	return "/" + csv1.ClusterService_ServiceDesc.ServiceName + "/" + strings.TrimSuffix(string(r.New().ProtoReflect().Descriptor().Name()), "Request")
}

var wildcard = regexp.MustCompile(`\{([a-z]+)\}`)

// Wildcards returns the names of the wildcards of a path, in order.
func Wildcards(path string) []string {
	var names []string
	for _, match := range wildcard.FindAllStringSubmatch(path, -1) {
		names = append(names, match[1])
	}
	return names
}

// Request returns the method, the path below Root and the content of a request of the action. values are those of the wildcards, in order. body is a value of the
// type of Body, a message of Cluster Service, or nil.
func (a *Action) Request(body any, values ...string) (method, path string, content any) {
	path = wildcard.ReplaceAllStringFunc(a.Path, func(string) string {
		value := values[0]
		values = values[1:]
		return url.PathEscape(value)
	})
	if message, ok := body.(proto.Message); ok {
		body = Message[proto.Message]{message}
	}
	return a.Method, path, body
}

// Actions returns all actions.
func Actions() []Action { return slices.Clone(actions) }

// FindAction returns an action by its name; nil if this release does not have it.
func FindAction(name string) *Action {
	for _, a := range actions {
		if a.Name == name {
			return &a
		}
	}
	return nil
}

// ClassOf returns the lowest class of an action; empty for an unknown action. Parameters may need a higher class: see Level.Class.
func ClassOf(action string) AccessClass {
	if a := FindAction(action); a != nil {
		return a.Class
	}
	return ""
}

// The names of the actions, which Actions declares. The backend executes an admin operation by its action.
// The parameters of an action that Cluster Service executes are the request of Cluster Service's API in protobuf's JSON form,
// without the actor.
const (
	ActionClusterPause   = "clusters.pause"
	ActionClusterResume  = "clusters.resume"
	ActionClusterSetSize = "clusters.setSize"
	ActionClusterRetry   = "clusters.retry"
	ActionClusterForce   = "clusters.force"
	ActionClusterAccept  = "clusters.acceptControlPlane"

	ActionDeletionRetry   = "deletions.retry"
	ActionDeletionRelease = "deletions.release"
	ActionDeletionForce   = "deletions.force"

	ActionUpgradeStart        = "upgrades.start"
	ActionUpgradePause        = "upgrades.pause"
	ActionUpgradeResume       = "upgrades.resume"
	ActionUpgradeAbort        = "upgrades.abort"
	ActionUpgradeAcknowledge  = "upgrades.acknowledge"
	ActionUpgradePolicyApply  = "upgradePolicies.apply"
	ActionUpgradePolicyDelete = "upgradePolicies.delete"

	ActionNodePoolScale = "nodePools.scale"

	ActionCredentialRequest = "credentials.request"
	ActionCredentialRevoke  = "credentials.revoke"
	// ActionCredentialRevokeOne revokes one credential, and the others of its elevation.
	ActionCredentialRevokeOne = "credentials.revokeOne"
	// ActionAccessSessionRequest requests the credential of an access session.
	ActionAccessSessionRequest = "accessSessions.request"
	// ActionShardSessionRequest requests an access session for the management cluster of a provision shard.
	ActionShardSessionRequest = "shardSessions.request"
	// ActionServiceClusterSessionRequest requests an access session for the service cluster.
	ActionServiceClusterSessionRequest = "serviceClusterSessions.request"
	// ActionElevationEnd revokes the credentials of one cluster, or ends the sessions for one management cluster or for the service cluster, that were
	// requested with an elevation that was ended. Each of them has an operation. It needs no active elevation.
	ActionElevationEnd = "elevations.end"

	ActionShardUpdate     = "shards.update"
	ActionShardRegister   = "shards.register"
	ActionShardDrain      = "shards.drain"
	ActionShardDeregister = "shards.deregister"

	ActionPlacementSet = "placement.set"

	ActionARMOperationRetry  = "armOperations.retry"
	ActionARMOperationCancel = "armOperations.cancel"

	ActionOrphanDelete      = "orphans.delete"
	ActionAzureOrphanDelete = "azureOrphans.delete"

	ActionDriftReconcile = "drift.reconcile"
	ActionDriftDelete    = "drift.delete"

	ActionQuotaSet = "quotas.set"

	ActionEgressLinkSet    = "egressLinks.set"
	ActionEgressLinkDelete = "egressLinks.delete"
)

const post, put, patch, del = http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

var actions = []Action{
	{Name: ActionClusterPause, Class: Operate, Method: post, Path: "/clusters/{cluster}/pause", Body: PauseRequest{}, RPC: rpc(csv1.ClusterServiceClient.PauseCluster),
		Summary: "Pause HyperShift's reconciliation of the control plane and the node pools. Running workloads are not affected."},
	{Name: ActionClusterResume, Class: Operate, Method: post, Path: "/clusters/{cluster}/resume", RPC: rpc(csv1.ClusterServiceClient.ResumeCluster), Summary: "Resume the reconciliation of a paused cluster."},
	{Name: ActionClusterSetSize, Class: Operate, Method: post, Path: "/clusters/{cluster}/set-size", Body: SetSizeRequest{}, RPC: rpc(csv1.ClusterServiceClient.SetClusterSize),
		Summary: "Override the size class of the control plane, or remove the override."},
	{Name: ActionClusterRetry, Class: Operate, Method: post, Path: "/clusters/{cluster}/retry", RPC: rpc(csv1.ClusterServiceClient.RetryCluster),
		Summary: "Retry all pending steps of a cluster immediately: placement, publishing of works, and steps in Azure."},
	{Name: ActionClusterForce, Class: Recover, Method: post, Path: "/clusters/{cluster}/force", Body: Message[*csv1.ForceClusterStepRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ForceClusterStep),
		Summary: "Stop waiting for a stuck Azure step of a cluster in creation. The step is still retried."},
	{Name: ActionClusterAccept, Class: Recover, Method: post, Path: "/clusters/{cluster}/accept-control-plane", Body: Message[*csv1.AcceptControlPlaneRequest]{}, RPC: rpc(csv1.ClusterServiceClient.AcceptControlPlane),
		Summary: "Accept the new, empty control plane of a cluster whose control plane was removed from its management cluster. The data of the removed one is lost."},
	{Name: ActionDeletionRetry, Class: Operate, Method: post, Path: "/clusters/{cluster}/deletion/retry", RPC: rpc(csv1.ClusterServiceClient.RetryDeletion), Summary: "Retry all running deletion steps immediately, in Cluster Service and in ARM."},
	{Name: ActionDeletionRelease, Class: Recover, Method: post, Path: "/clusters/{cluster}/deletion/release", Body: Message[*csv1.ReleaseDeletionFinalizersRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ReleaseDeletionFinalizers),
		Summary: "Release finalizers that block a deletion step."},
	{Name: ActionDeletionForce, Class: Recover, Method: post, Path: "/clusters/{cluster}/deletion/force", Body: Message[*csv1.ForceDeletionStepRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ForceDeletionStep),
		Summary: "Stop waiting for a deletion step of Cluster Service. Leftovers are listed. Steps in ARM are rejected."},
	{Name: ActionUpgradeStart, Class: Operate, Method: post, Path: "/clusters/{cluster}/upgrades", Body: Message[*csv1.StartUpgradeRequest]{}, RPC: rpc(csv1.ClusterServiceClient.StartUpgrade),
		Summary: "Start an upgrade. Its UID is the ID of the operation. Acknowledging gates requires the role break-glass."},
	{Name: ActionUpgradePause, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/pause", RPC: rpc(csv1.ClusterServiceClient.PauseUpgrade), Summary: "Pause an upgrade. Started steps continue."},
	{Name: ActionUpgradeResume, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/resume", RPC: rpc(csv1.ClusterServiceClient.ResumeUpgrade), Summary: "Resume a paused upgrade."},
	{Name: ActionUpgradeAbort, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/abort", RPC: rpc(csv1.ClusterServiceClient.AbortUpgrade), Summary: "Abort the steps of an upgrade that have not started."},
	{Name: ActionUpgradeAcknowledge, Class: Recover, Method: post, Path: "/upgrades/{upgrade}/acknowledge", Body: Message[*csv1.AcknowledgeUpgradeGateRequest]{}, RPC: rpc(csv1.ClusterServiceClient.AcknowledgeUpgradeGate),
		Summary: "Acknowledge a gate of an upgrade."},
	{Name: ActionUpgradePolicyApply, Class: Operate, Method: put, Path: "/upgrade-policies/{policy}", Body: Message[*csv1.ApplyUpgradePolicyRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ApplyUpgradePolicy),
		Summary: "Create or replace an upgrade policy."},
	{Name: ActionUpgradePolicyDelete, Class: Operate, Method: del, Path: "/upgrade-policies/{policy}", RPC: rpc(csv1.ClusterServiceClient.DeleteUpgradePolicy), Summary: "Delete an upgrade policy. Its upgrades in progress continue."},
	{Name: ActionNodePoolScale, Class: Operate, Method: post, Path: "/clusters/{cluster}/node-pools/{pool}/scale", Body: ScaleRequest{}, Summary: "Set the size of a node pool in the customer's place. ARM shows it as an update."},
	{Name: ActionCredentialRequest, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials", Body: CredentialRequest{},
		Summary: "Request a credential of class sre. Its UID is the ID of the operation. The level admin requires the role break-glass."},
	{Name: ActionCredentialRevoke, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials/revoke", Body: RevokeRequest{}, Summary: "Revoke all credentials of a class by replacing its signer."},
	{Name: ActionCredentialRevokeOne, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials/{credential}/revoke",
		Summary: "Revoke one credential of class sre, and the others that were requested for its cluster with the same elevation. None is issued with this elevation any more. The API server accepts a certificate until it expires, at most 15 minutes after it was signed."},
	{Name: ActionAccessSessionRequest, Class: Operate, Method: post, Path: "/clusters/{cluster}/access-sessions", Body: AccessSessionRequest{},
		Summary: "Request a session at the session gateway for the API server of a cluster. Its ID is the ID of the operation. The gateway holds the private key, and each request needs the token of the engineer. The mode read permits everything that the level reader permits. The mode admin permits everything, also commands in pods and port forwarding; it requires an elevation of the class break-glass."},
	{Name: ActionShardSessionRequest, Class: Operate, Method: post, Path: "/shards/{shard}/access-sessions", Body: AccessSessionRequest{},
		Summary: "Request a session at the session gateway for the API server of the management cluster of a provision shard. Its ID is the ID of the operation. The gateway holds the token, and each request needs the token of the engineer. The elevation must be for the whole region. The mode read permits to read everything but Secrets. The mode admin permits everything; it requires an elevation of the class break-glass."},
	{Name: ActionServiceClusterSessionRequest, Class: Operate, Method: post, Path: "/service-cluster/access-sessions", Body: AccessSessionRequest{},
		Summary: "Request a session at the session gateway for the API server of the service cluster. Its ID is the ID of the operation. Everything else is as for a management cluster. A region without a service cluster responds with the status 409."},
	// Its operations are created by the end of an elevation, whose route responds with the elevation.
	{Name: ActionElevationEnd},
	{Name: ActionShardUpdate, Class: Operate, Method: patch, Path: "/shards/{shard}", Body: Message[*csv1.UpdateProvisionShardRequest]{}, RPC: rpc(csv1.ClusterServiceClient.UpdateProvisionShard),
		Summary: "Cordon or uncordon a provision shard, or override its capacity, zones, size classes or labels."},
	{Name: ActionShardRegister, Class: Recover, Method: put, Path: "/shards/{shard}", Body: Message[*csv1.RegisterProvisionShardRequest]{}, RPC: rpc(csv1.ClusterServiceClient.RegisterProvisionShard),
		Summary: "Register a provision shard. Its Maestro consumer has the same name."},
	{Name: ActionShardDrain, Class: Operate, Method: post, Path: "/shards/{shard}/drain", Body: Message[*csv1.DrainProvisionShardRequest]{}, RPC: rpc(csv1.ClusterServiceClient.DrainProvisionShard), Summary: "Cordon a provision shard permanently. No cluster is moved."},
	{Name: ActionShardDeregister, Class: Recover, Method: del, Path: "/shards/{shard}", RPC: rpc(csv1.ClusterServiceClient.DeregisterProvisionShard), Summary: "Deregister an empty provision shard."},
	{Name: ActionPlacementSet, Class: Operate, Method: put, Path: "/clusters/{cluster}/placement", Body: Message[*csv1.SetPlacementPolicyRequest]{}, RPC: rpc(csv1.ClusterServiceClient.SetPlacementPolicy),
		Summary: "Set placement rules for a cluster, which override those of the region."},
	{Name: ActionARMOperationRetry, Class: Operate, Method: post, Path: "/arm-operations/{operation}/retry", Summary: "Retry an ARM operation immediately."},
	{Name: ActionARMOperationCancel, Class: Recover, Method: post, Path: "/arm-operations/{operation}/cancel", Summary: "Cancel a create or update operation of ARM. Changes that Cluster Service accepted stay."},
	{Name: ActionOrphanDelete, Class: Recover, Method: del, Path: "/orphans/{bundle}", RPC: rpc(csv1.ClusterServiceClient.DeleteOrphan), Summary: "Delete an orphaned bundle and its objects on the management cluster."},
	{Name: ActionAzureOrphanDelete, Class: Recover, Method: del, Path: "/azure-orphans/{orphan}", RPC: rpc(csv1.ClusterServiceClient.DeleteAzureOrphan),
		Summary: "Delete a resource in Azure whose cluster is proved to be deleted. Cluster Service checks the proof again."},
	{Name: ActionDriftReconcile, Class: Operate, Method: post, Path: "/drift/reconcile", Summary: "Compare the region and send lost resources to the fleet again."},
	{Name: ActionDriftDelete, Class: Recover, Method: del, Path: "/drift/{uid}", Summary: "Delete a resource from the fleet that ARM does not have."},
	{Name: ActionQuotaSet, Class: Operate, Method: put, Path: "/subscriptions/{subscription}/quota", Body: SetQuotaRequest{},
		Summary: "Set how many clusters a subscription may have in the region, or reset it to the default. It changes no existing cluster."},
	{Name: ActionEgressLinkSet, Class: Operate, Method: put, Path: "/clusters/{cluster}/egress-links/{link}", Body: SetEgressLinkRequest{},
		Summary: "Assign a link of the egress gateway to a cluster, or replace the hosts of its link. {link} is the link ID of the private endpoint. A removed link is refused for another cluster for 15 minutes."},
	{Name: ActionEgressLinkDelete, Class: Operate, Method: del, Path: "/egress-links/{link}", Summary: "Remove a link of the egress gateway from its cluster. Its connections are closed. Delete the private endpoint afterwards."},
}
