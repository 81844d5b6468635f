package adminv1

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Action declares an action that an SRE can request. Admin's routes and OpenAPI document, the signed intent, the backend's calls of Cluster Service, the
// commands of hcpctl and the forms of the portal are derived from it.
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
	// Command is the command of hcpctl. It is empty if hcpctl has none, or one that does more than request the action and print its result.
	Command Command
	// Form is the form of the portal. It is empty if the portal has none, or several, or one whose fields depend on each other.
	Form Form
	// Fields are the parameters in the body and, if an object is named by more than the page of the portal, in the path.
	Fields []Field
}

// Command is a command of hcpctl. Its arguments are the wildcards of the path and then the fields without a flag. An upgrade is named by its cluster. hcpctl adds
// the flags that all actions have, and describes the role and CLUSTER.
type Command struct {
	// Group are the commands above it, for example "upgrade policy". Use is its name and its arguments.
	Group, Use string
	// Short and Long describe the command. Short may be empty: it is the first sentence of the summary. Long is empty if Short is enough.
	Short, Long string
	// Done is what the command prints at the end, with %s for the ID of the target. If it is empty, the command prints the result.
	Done string
	// Examples are pairs of a purpose and a command line.
	Examples [][2]string
}

// Form is a form of the portal.
type Form struct {
	// Path is the last part of the path of the form. The first part is that of the action's path. Effect states what the action does.
	Path, Title, Effect string
	// OnCluster is set if the page of a cluster offers the form, unless the cluster is deleted.
	OnCluster bool
}

// Field is a parameter of an action.
type Field struct {
	// Name is the name of the field in the JSON form of the body, or of the wildcard in the path.
	Name string
	Kind FieldKind
	// Optional is set for a field that may be empty.
	Optional bool
	// Min and Max limit a number, and the length of a list if Max is not 0.
	Min, Max int32
	// Choices are the values of a FieldSelect.
	Choices []string
	// Flag is the flag of the command, Default its default value and Usage its description. A field without a flag is an argument.
	Flag, Default, Usage string
	// Label, Help and Value are the label, the description and the first value of the input of the portal.
	Label, Help, Value string
}

// FieldKind is the form of a value.
type FieldKind string

// The kinds of fields. Empty means a text.
const (
	// FieldNumber is a number, which is required.
	FieldNumber FieldKind = "number"
	FieldCheck  FieldKind = "check"
	// FieldList is a list of names, separated by commas. As an argument it is the last one, and may be repeated.
	FieldList FieldKind = "list"
	// FieldArea is a list of names, each in a line of its own. Its flag may be repeated.
	FieldArea FieldKind = "area"
	// FieldLabels is a map: name=value, separated by commas.
	FieldLabels FieldKind = "labels"
	FieldSelect FieldKind = "select"
	// FieldFixed is a text that the page before the form chooses; it can be entered if there is none.
	FieldFixed  FieldKind = "fixed"
	FieldHidden FieldKind = "hidden"
)

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

// expand replaces the wildcards of a path by values, in order.
func expand(path string, values []string) string {
	return wildcard.ReplaceAllStringFunc(path, func(string) string {
		value := values[0]
		values = values[1:]
		return url.PathEscape(value)
	})
}

// Request returns the method, the path below Root and the content of a request of the action. values are those of the wildcards, in order. body is a value of the
// type of Body, a message of Cluster Service, or nil.
func (a *Action) Request(body any, values ...string) (method, path string, content any) {
	path = expand(a.Path, values)
	if message, ok := body.(proto.Message); ok {
		body = Message[proto.Message]{message}
	}
	return a.Method, path, body
}

// Content returns the body of a request, of the type of Body. values are those of the fields in the body.
func (a *Action) Content(values map[string]any) (any, error) {
	if a.Body == nil {
		return nil, nil
	}
	content, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	body := reflect.New(reflect.TypeOf(a.Body))
	err = json.Unmarshal(content, body.Interface())
	return body.Elem().Interface(), err
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
	{Name: ActionClusterRetry, Class: Operate, Method: post, Path: "/clusters/{cluster}/retry", RPC: rpc(csv1.ClusterServiceClient.RetryCluster),
		Summary: "Retry all pending steps of a cluster immediately: placement, publishing of works, and steps in Azure.",
		Command: Command{Group: "cluster", Use: "retry CLUSTER", Short: "Retry all pending steps of a cluster immediately", Examples: [][2]string{{"Retry the pending steps of a cluster", "hcpctl cluster retry demo --reason 'the quota was raised' --ticket INC-42"}}},
		Form:    Form{Path: "retry", Title: "Retry", OnCluster: true, Effect: "All pending steps of the cluster are retried at once: placement, publishing of works, and steps in Azure. Steps that run or are complete are not affected."}},
	{Name: ActionClusterPause, Class: Operate, Method: post, Path: "/clusters/{cluster}/pause", Body: PauseRequest{}, RPC: rpc(csv1.ClusterServiceClient.PauseCluster),
		Summary: "Pause HyperShift's reconciliation of the control plane and the node pools. Running workloads are not affected.",
		Command: Command{Group: "cluster", Use: "pause CLUSTER", Short: "Pause the reconciliation of a cluster", Examples: [][2]string{{"Pause a cluster for 30 minutes", "hcpctl cluster pause demo --for 30m --reason 'etcd is restored by hand' --ticket INC-42"}},
			Long: `Pause HyperShift's reconciliation of a cluster's control plane and node pools. Running workloads are not affected. The pause
ends automatically, or with 'hcpctl cluster resume'.`},
		Form:   Form{Path: "pause", Title: "Pause", OnCluster: true, Effect: "HyperShift stops the reconciliation of the control plane and the node pools until the pause ends. Running workloads are not affected."},
		Fields: []Field{{Name: "duration", Flag: "for", Default: "1h", Usage: "`duration` of the pause, at most 168h", Label: "Duration", Help: "For example 30m or 2h, at most 168h.", Value: "30m"}}},
	{Name: ActionClusterResume, Class: Operate, Method: post, Path: "/clusters/{cluster}/resume", RPC: rpc(csv1.ClusterServiceClient.ResumeCluster),
		Summary: "Resume the reconciliation of a paused cluster.",
		Command: Command{Group: "cluster", Use: "resume CLUSTER", Examples: [][2]string{{"Resume a paused cluster", "hcpctl cluster resume demo --reason 'etcd is restored' --ticket INC-42"}}},
		Form:    Form{Path: "resume", Title: "Resume", OnCluster: true, Effect: "HyperShift continues the reconciliation of a paused cluster and its node pools."}},
	{Name: ActionClusterSetSize, Class: Operate, Method: post, Path: "/clusters/{cluster}/set-size", Body: SetSizeRequest{}, RPC: rpc(csv1.ClusterServiceClient.SetClusterSize),
		Summary: "Override the size class of the control plane, or remove the override.",
		Command: Command{Group: "cluster", Use: "set-size CLUSTER", Short: "Override the size class of a hosted control plane", Examples: [][2]string{{"Set the size class", "hcpctl cluster set-size demo --size large --reason 'API server is slow' --ticket INC-42"}, {"Remove the override", "hcpctl cluster set-size demo --size '' --reason 'load is normal' --ticket INC-42"}}},
		Form:    Form{Path: "set-size", Title: "Control plane size", OnCluster: true, Effect: "The control plane gets this size class, whatever the customer or the number of nodes requests, until an engineer removes the override. HyperShift changes the resources of its components, which restart one after the other."},
		Fields:  []Field{{Name: "size", Flag: "size", Optional: true, Usage: "`name` of the size class; empty removes the override", Label: "Size class", Help: "The name of a size class of the management cluster. Empty removes the override."}}},
	{Name: ActionClusterForce, Class: Recover, Method: post, Path: "/clusters/{cluster}/force", Body: Message[*csv1.ForceClusterStepRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ForceClusterStep),
		Summary: "Stop waiting for a stuck Azure step of a cluster in creation. The step is still retried.",
		Command: Command{Group: "cluster", Use: "force CLUSTER STEP", Examples: [][2]string{{"Stop waiting for role assignments", "hcpctl cluster force demo azure/operator-roles --reason 'roles were assigned by hand' --ticket INC-42"}},
			Long: `Stop waiting for a stuck Azure step of a cluster in creation, for example azure/operator-roles. Cluster Service continues to
retry the step in the background.`},
		Form:   Form{Path: "force-step", Title: "Force step of the creation", Effect: "The creation of the cluster does not wait for this stuck Azure step any more. The step is still retried. Force it only if the cluster works without its resource."},
		Fields: []Field{{Name: "step", Kind: FieldFixed, Label: "Step", Help: "The name of the step, for example azure/operator-roles."}}},
	{Name: ActionClusterAccept, Class: Recover, Method: post, Path: "/clusters/{cluster}/accept-control-plane", Body: Message[*csv1.AcceptControlPlaneRequest]{}, RPC: rpc(csv1.ClusterServiceClient.AcceptControlPlane),
		Summary: "Accept the new, empty control plane of a cluster whose control plane was removed from its management cluster. The data of the removed one is lost.",
		Command: Command{Group: "cluster", Use: "accept-control-plane CLUSTER", Short: "Accept the new control plane of a cluster that lost its own", Examples: [][2]string{{"Accept a control plane that was rebuilt without its data", "hcpctl cluster accept-control-plane demo --reason 'the customer restores a backup' --ticket INC-42"}},
			Long: `Accept the new, empty control plane of a cluster whose control plane was removed from its management cluster. The cluster then has
the state that the new control plane warrants. The data of the removed control plane is lost: the customer's objects are gone.
Restore the data or delete the cluster instead, if the customer wants that.`},
		Form:   Form{Path: "accept-control-plane", Title: "Accept rebuilt control plane", Effect: "The new, empty control plane of a cluster whose control plane was removed is accepted. The data of the removed one is lost, and the cluster is shown as healthy when the new one is. This cannot be undone."},
		Fields: []Field{{Name: "controlPlaneUid", Flag: "control-plane", Optional: true, Usage: "`UID` of the successor to accept, as explain shows it: of the HostedCluster or, if that is the same, of its namespace; empty accepts the current one", Label: "UID of the new control plane", Help: "From the explanation of the cluster. Empty accepts the current one."}}},
	{Name: ActionDeletionRetry, Class: Operate, Method: post, Path: "/clusters/{cluster}/deletion/retry", RPC: rpc(csv1.ClusterServiceClient.RetryDeletion),
		Summary: "Retry all running deletion steps immediately, in Cluster Service and in ARM.",
		Command: Command{Group: "deletion", Use: "retry CLUSTER", Short: "Retry all pending deletion steps of a cluster immediately", Examples: [][2]string{{"Retry the pending steps of a deletion", "hcpctl deletion retry demo --reason 'Maestro is back' --ticket INC-42"}}},
		Form:    Form{Path: "retry-deletion", Title: "Retry deletion", Effect: "All running deletion steps of the cluster and its children are retried at once, in Cluster Service and in ARM."}},
	{Name: ActionDeletionRelease, Class: Recover, Method: post, Path: "/clusters/{cluster}/deletion/release", Body: Message[*csv1.ReleaseDeletionFinalizersRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ReleaseDeletionFinalizers),
		Summary: "Release finalizers that block a deletion step.",
		Command: Command{Group: "deletion", Use: "release CLUSTER STEP FINALIZER...", Examples: [][2]string{{"Release a finalizer whose controller is gone", "hcpctl deletion release demo hosted-cluster backup.example.com/hook --reason 'backup operator was removed' --ticket INC-42"}},
			Long: `Release finalizers whose controllers no longer exist. The Maestro agent of the management cluster removes them from the objects
of the step and from all objects in deletion in the namespaces of the cluster; the step then continues automatically. Finalizers
of controllers that run on every management cluster are rejected.`},
		Form: Form{Path: "release-finalizers", Title: "Release finalizers", Effect: "The agent removes these finalizers from the objects of the step on the management cluster. What their controllers would have cleaned up remains."},
		Fields: []Field{
			{Name: "step", Kind: FieldFixed, Label: "Step", Help: "The name of the step, for example hosted-cluster."},
			{Name: "finalizers", Kind: FieldList, Min: 1, Max: 8, Label: "Finalizers", Help: "The full names, 1 to 8, separated by commas, for example backup.example.com/hook."},
		}},
	{Name: ActionDeletionForce, Class: Recover, Method: post, Path: "/clusters/{cluster}/deletion/force", Body: Message[*csv1.ForceDeletionStepRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ForceDeletionStep),
		Summary: "Stop waiting for a deletion step of Cluster Service. Leftovers are listed. Steps in ARM are rejected.",
		Command: Command{Group: "deletion", Use: "force CLUSTER STEP", Short: "Stop waiting for a stuck deletion step", Examples: [][2]string{{"Stop waiting for the namespaces", "hcpctl deletion force demo namespaces --reason 'the management cluster is lost' --ticket INC-42"}},
			Long: `Stop waiting for a stuck deletion step. Cluster Service records the objects that may be left behind
and continues to delete them; see 'hcpctl deletion leftovers'.`},
		Form:   Form{Path: "force-deletion-step", Title: "Force deletion step", Effect: "The deletion does not wait for this step of Cluster Service any more. What the step has not deleted may remain; works that remain are listed as leftovers until they are gone. Steps in ARM cannot be forced."},
		Fields: []Field{{Name: "step", Kind: FieldFixed, Label: "Step", Help: "The name of the step, for example hosted-cluster."}}},
	{Name: ActionUpgradeStart, Class: Operate, Method: post, Path: "/clusters/{cluster}/upgrades", Body: Message[*csv1.StartUpgradeRequest]{}, RPC: rpc(csv1.ClusterServiceClient.StartUpgrade),
		Summary: "Start an upgrade. Its UID is the ID of the operation. Acknowledging gates requires the role break-glass."},
	{Name: ActionUpgradePause, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/pause", RPC: rpc(csv1.ClusterServiceClient.PauseUpgrade),
		Summary: "Pause an upgrade. Started steps continue.",
		Command: Command{Group: "upgrade", Use: "pause CLUSTER", Short: "Pause an upgrade; started steps continue", Examples: [][2]string{{"Pause an upgrade", "hcpctl upgrade pause demo --reason 'nodes do not drain' --ticket INC-42"}}},
		Form:    Form{Path: "pause", Title: "Pause upgrade", Effect: "The upgrade starts no further step. A started step continues, because a rollout cannot be stopped."}},
	{Name: ActionUpgradeResume, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/resume", RPC: rpc(csv1.ClusterServiceClient.ResumeUpgrade),
		Summary: "Resume a paused upgrade.",
		Command: Command{Group: "upgrade", Use: "resume CLUSTER", Examples: [][2]string{{"Resume an upgrade", "hcpctl upgrade resume demo --reason 'nodes drain again' --ticket INC-42"}}},
		Form:    Form{Path: "resume", Title: "Resume upgrade", Effect: "The upgrade continues with its next step when the gates of that are passed."}},
	{Name: ActionUpgradeAbort, Class: Operate, Method: post, Path: "/upgrades/{upgrade}/abort", RPC: rpc(csv1.ClusterServiceClient.AbortUpgrade),
		Summary: "Abort the steps of an upgrade that have not started.",
		Command: Command{Group: "upgrade", Use: "abort CLUSTER", Short: "Abort an upgrade; rejected while the control plane rolls out", Examples: [][2]string{{"Abort an upgrade", "hcpctl upgrade abort demo --reason 'the customer asked for it' --ticket INC-42"}}},
		Form:    Form{Path: "abort", Title: "Abort upgrade", Effect: "The steps that have not started are aborted; completed steps stay. While the control plane rolls out a release, the request is rejected: pause the later steps instead. An operation of the customer that caused the upgrade fails."}},
	{Name: ActionUpgradeAcknowledge, Class: Recover, Method: post, Path: "/upgrades/{upgrade}/acknowledge", Body: Message[*csv1.AcknowledgeUpgradeGateRequest]{}, RPC: rpc(csv1.ClusterServiceClient.AcknowledgeUpgradeGate),
		Summary: "Acknowledge a gate of an upgrade.",
		Command: Command{Group: "upgrade", Use: "ack CLUSTER GATE", Examples: [][2]string{{"Acknowledge the gate minor-version", "hcpctl upgrade ack demo minor-version --reason 'the customer agreed' --ticket INC-42"}}},
		Form:    Form{Path: "acknowledge", Title: "Acknowledge gate", Effect: "The upgrade does not wait for this gate any more. If the gate reports a risk, the cluster takes the risk."},
		Fields:  []Field{{Name: "gate", Kind: FieldFixed, Label: "Gate", Help: "The name of the gate, for example minor-version."}}},
	{Name: ActionUpgradePolicyApply, Class: Operate, Method: put, Path: "/upgrade-policies/{policy}", Body: Message[*csv1.ApplyUpgradePolicyRequest]{}, RPC: rpc(csv1.ClusterServiceClient.ApplyUpgradePolicy),
		Summary: "Create or replace an upgrade policy."},
	{Name: ActionUpgradePolicyDelete, Class: Operate, Method: del, Path: "/upgrade-policies/{policy}", RPC: rpc(csv1.ClusterServiceClient.DeleteUpgradePolicy),
		Summary: "Delete an upgrade policy. Its upgrades in progress continue.",
		Command: Command{Group: "upgrade policy", Use: "delete NAME", Short: "Delete an upgrade policy; its upgrades in progress continue", Done: "upgrade policy %s deleted", Examples: [][2]string{{"Delete a policy", "hcpctl upgrade policy delete patches --reason 'replaced by nightly' --ticket CHG-8"}}},
		Form:    Form{Path: "delete", Title: "Delete upgrade policy", Effect: "The policy starts no further upgrade. Its upgrades in progress continue."}},
	{Name: ActionNodePoolScale, Class: Operate, Method: post, Path: "/clusters/{cluster}/node-pools/{pool}/scale", Body: ScaleRequest{}, Summary: "Set the size of a node pool in the customer's place. ARM shows it as an update."},
	{Name: ActionCredentialRequest, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials", Body: CredentialRequest{},
		Summary: "Request a credential of class sre. Its UID is the ID of the operation. The level admin requires the role break-glass."},
	{Name: ActionCredentialRevoke, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials/revoke", Body: RevokeRequest{},
		Summary: "Revoke all credentials of a class by replacing its signer.",
		Form:    Form{Path: "revoke-credentials", Title: "Revoke credentials of a class", Effect: "The control plane replaces the signer of the class; from then on the API server accepts none of its certificates. With the class customer, all break-glass kubeconfigs of the customer end."},
		Fields:  []Field{{Name: "class", Kind: FieldSelect, Choices: []string{"sre", "customer"}, Label: "Class", Help: "sre: credentials of engineers. customer: those of the customer's administrators.", Value: "sre"}}},
	{Name: ActionCredentialRevokeOne, Class: Operate, Method: post, Path: "/clusters/{cluster}/credentials/{credential}/revoke",
		Summary: "Revoke one credential of class sre, and the others that were requested for its cluster with the same elevation. None is issued with this elevation any more. The API server accepts a certificate until it expires, at most 15 minutes after it was signed.",
		Form:    Form{Path: "revoke-credential", Title: "Revoke credential", Effect: "This credential of class sre is revoked, and the others that were requested for the cluster with the same elevation. None is issued with this elevation any more. The API server accepts a certificate until it expires, at most 15 minutes after it was signed."},
		Fields:  []Field{{Name: "credential", Kind: FieldFixed, Label: "Credential", Help: "The UID of the credential."}}},
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
		Summary: "Register a provision shard. Its Maestro consumer has the same name.",
		Command: Command{Group: "shard", Use: "register NAME", Short: "Register a management cluster as a provision shard", Examples: [][2]string{{"Register a shard for 100 clusters", "hcpctl shard register mgmt-3 --capacity 100 --zones 1,2,3 --reason 'new management cluster' --ticket CHG-8"}},
			Long: `Register a management cluster as a provision shard. Its Maestro consumer must have the same name. The shard is cordoned until
'hcpctl shard uncordon'.`},
		Fields: []Field{
			{Name: "capacity", Kind: FieldNumber, Flag: "capacity", Usage: "maximum number of `clusters`; required", Max: 100_000, Label: "Capacity", Help: "The maximum number of clusters."},
			{Name: "zones", Kind: FieldList, Flag: "zones", Optional: true, Usage: "availability `zones` of the shard", Label: "Zones", Help: "Availability zones of its nodes, separated by commas."},
			{Name: "sizeClasses", Kind: FieldList, Flag: "size-classes", Optional: true, Usage: "accepted size `classes` (default: all)", Label: "Size classes", Help: "The size classes that it accepts, separated by commas. Empty means all."},
			{Name: "labels", Kind: FieldLabels, Flag: "labels", Optional: true, Usage: "`labels`, for example stage=prod", Label: "Labels", Help: "All labels, for example stage=prod, separated by commas."},
		}},
	{Name: ActionShardDrain, Class: Operate, Method: post, Path: "/shards/{shard}/drain", Body: Message[*csv1.DrainProvisionShardRequest]{}, RPC: rpc(csv1.ClusterServiceClient.DrainProvisionShard),
		Summary: "Cordon a provision shard permanently. No cluster is moved.",
		Command: Command{Group: "shard", Use: "drain NAME", Short: "Cordon a provision shard permanently and plan where its clusters would go", Examples: [][2]string{{"Drain a shard", "hcpctl shard drain mgmt-1 --reason 'it is decommissioned' --ticket CHG-8"}},
			Long: `Cordon a provision shard permanently and plan where its clusters would go. No cluster is moved: hcpmesh cannot move clusters
yet. They stay on the shard until they are deleted.`},
		Form:   Form{Path: "drain", Title: "Drain", Effect: "The shard is cordoned until an engineer uncordons it, and is shown as draining. No cluster is moved: clusters stay on it until they are deleted. The plan shows where they would fit."},
		Fields: []Field{{Name: "acceptNoRoom", Kind: FieldCheck, Flag: "accept-no-room", Optional: true, Usage: "cordon it even if no other shard accepts clusters", Label: "Accept that no shard has room", Help: "Without it the last shard that accepts clusters is not closed. With it new clusters wait."}}},
	{Name: ActionShardDeregister, Class: Recover, Method: del, Path: "/shards/{shard}", RPC: rpc(csv1.ClusterServiceClient.DeregisterProvisionShard),
		Summary: "Deregister an empty provision shard.",
		Command: Command{Group: "shard", Use: "deregister NAME", Examples: [][2]string{{"Deregister an empty shard", "hcpctl shard deregister mgmt-1 --reason 'it is decommissioned' --ticket CHG-8"}}},
		Form:    Form{Path: "deregister", Title: "Deregister", Effect: "The shard, which must be cordoned and hold no cluster, also none in deletion, is deregistered. It stays so even if the shards file lists it."}},
	{Name: ActionPlacementSet, Class: Operate, Method: put, Path: "/clusters/{cluster}/placement", Body: Message[*csv1.SetPlacementPolicyRequest]{}, RPC: rpc(csv1.ClusterServiceClient.SetPlacementPolicy),
		Summary: "Set placement rules for a cluster, which override those of the region."},
	{Name: ActionARMOperationRetry, Class: Operate, Method: post, Path: "/arm-operations/{operation}/retry",
		Summary: "Retry an ARM operation immediately.",
		Command: Command{Group: "operation", Use: "retry ARM-OPERATION", Examples: [][2]string{{"Retry an ARM operation", "hcpctl operation retry 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --reason 'Cluster Service is back' --ticket INC-42"}}},
		Form:    Form{Path: "retry", Title: "Retry operation of the customer", Effect: "The backend executes the next step of the operation at once, without the pause after its last error."}},
	{Name: ActionARMOperationCancel, Class: Recover, Method: post, Path: "/arm-operations/{operation}/cancel",
		Summary: "Cancel a create or update operation of ARM. Changes that Cluster Service accepted stay.",
		Command: Command{Group: "operation", Use: "cancel ARM-OPERATION", Examples: [][2]string{{"Cancel an ARM operation", "hcpctl operation cancel 3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11 --reason 'the customer asked for it' --ticket INC-42"}}},
		Form:    Form{Path: "cancel", Title: "Cancel operation of the customer", Effect: "The operation, which creates or updates a resource, ends as canceled, and the customer sees that. Changes that Cluster Service has accepted stay. This cannot be undone."}},
	{Name: ActionOrphanDelete, Class: Recover, Method: del, Path: "/orphans/{bundle}", RPC: rpc(csv1.ClusterServiceClient.DeleteOrphan),
		Summary: "Delete an orphaned bundle and its objects on the management cluster.",
		Command: Command{Group: "orphan", Use: "delete ID", Examples: [][2]string{{"Delete an orphaned bundle", "hcpctl orphan delete 0b7a4b1e-7a55-4f0e-9d1c-2f6f3c9a7c41 --reason 'its cluster is deleted' --ticket INC-42"}}},
		Form:    Form{Path: "delete", Title: "Delete orphan", Effect: "Maestro deletes the bundle, and the agent deletes its objects from the management cluster. If they belong to a running control plane, that ends. This cannot be undone."}},
	{Name: ActionAzureOrphanDelete, Class: Recover, Method: del, Path: "/azure-orphans/{orphan}", RPC: rpc(csv1.ClusterServiceClient.DeleteAzureOrphan),
		Summary: "Delete a resource in Azure whose cluster is proved to be deleted. Cluster Service checks the proof again.",
		Command: Command{Group: "azure-orphan", Use: "delete ID", Examples: [][2]string{{"Delete a resource in Azure whose cluster is deleted", "hcpctl azure-orphan delete 0b7a4b1e-7a55-4f0e-9d1c-2f6f3c9a7c41 --reason 'its cluster is deleted' --ticket INC-42"}},
			Long: `Delete a resource in Azure whose cluster is proved to be deleted. Cluster Service reads the resource and its cluster again. It refuses
the deletion without a PROOF, if the resource names another cluster than the list, and if the cluster that it names exists.`},
		Form: Form{Path: "delete", Title: "Delete Azure orphan", Effect: "Cluster Service reads the resource and its cluster again. It deletes the resource, a group with everything in it, if a record proves that the cluster is deleted. This cannot be undone."}},
	{Name: ActionDriftReconcile, Class: Operate, Method: post, Path: "/drift/reconcile",
		Summary: "Compare the region and send lost resources to the fleet again.",
		Command: Command{Group: "drift", Use: "reconcile", Examples: [][2]string{{"Send lost resources again", "hcpctl drift reconcile --reason 'the database was restored' --ticket INC-42"}}},
		Form:    Form{Path: "reconcile-drift", Title: "Compare and repair", Effect: "The backend compares ARM's documents of the region with the fleet at once, and sends resources and deletions that the fleet has lost again. Differences that an engineer must decide are only counted."}},
	{Name: ActionDriftDelete, Class: Recover, Method: del, Path: "/drift/{uid}",
		Summary: "Delete a resource from the fleet that ARM does not have.",
		Command: Command{Group: "drift", Use: "delete UID", Examples: [][2]string{{"Delete an orphan from the fleet", "hcpctl drift delete 5d0e8f0c-0c3a-4f4a-8f62-5b8c1f1f9a10 --reason 'the customer deleted it' --ticket INC-42"}}},
		Form:    Form{Path: "delete", Title: "Delete from the fleet", Effect: "The resource, which ARM does not have, is deleted from the fleet: a cluster with its control plane and nodes. There is no proof that a customer deleted it. This cannot be undone."}},
	{Name: ActionQuotaSet, Class: Operate, Method: put, Path: "/subscriptions/{subscription}/quota", Body: SetQuotaRequest{},
		Summary: "Set how many clusters a subscription may have in the region, or reset it to the default. It changes no existing cluster."},
	{Name: ActionEgressLinkSet, Class: Operate, Method: put, Path: "/clusters/{cluster}/egress-links/{link}", Body: SetEgressLinkRequest{},
		Summary: "Assign a link of the egress gateway to a cluster, or replace the hosts of its link. {link} is the link ID of the private endpoint. A removed link is refused for another cluster for 15 minutes.",
		Command: Command{Group: "egress link", Use: "set CLUSTER LINK", Short: "Assign a link to a cluster, or replace its hosts", Done: "the link is assigned to cluster %s", Examples: [][2]string{{"Let a cluster use a private endpoint, and reach the storage of its image registry", "hcpctl egress link set demo 536872312 --host imageregistryx.blob.core.windows.net --reason 'the cluster has no way to the internet' --ticket INC-42"}},
			Long: `Assign a link of the egress gateway to a cluster, or replace the hosts of its link. LINK is the link ID of the private endpoint.
The hosts replace those that the link has; connections to hosts that are no longer permitted are closed. A link that was
removed from another cluster is refused for 15 minutes.`},
		Fields: []Field{
			{Name: "link", Label: "Link", Help: "The link ID of the private endpoint, a decimal number."},
			{Name: "hosts", Kind: FieldArea, Flag: "host", Optional: true, Usage: "`name` of a host that the cluster may connect to, beside those of the region; repeatable", Label: "Hosts", Help: "Names of the hosts that the cluster may connect to, beside those of the region; one in a line, at most 200. They replace those that the link has."},
		}},
	{Name: ActionEgressLinkDelete, Class: Operate, Method: del, Path: "/egress-links/{link}",
		Summary: "Remove a link of the egress gateway from its cluster. Its connections are closed. Delete the private endpoint afterwards.",
		Command: Command{Group: "egress link", Use: "delete LINK", Short: "Remove a link from its cluster", Done: "the link %s is removed", Examples: [][2]string{{"Remove a link from its cluster, and close its connections", "hcpctl egress link delete 536872312 --reason 'the private endpoint is deleted' --ticket INC-42"}},
			Long: `Remove a link of the egress gateway from its cluster. The gateway closes its connections. Delete the private endpoint afterwards.`},
		Form: Form{Path: "delete", Title: "Remove egress link", Effect: "The cluster loses the link, and its connections are closed. Delete the private endpoint afterwards. Another cluster can have the link after 15 minutes."}},
}
