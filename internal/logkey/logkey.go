// Package logkey lists the attribute keys of all log records.
//
// A key has one meaning in every service, so that a query over the logs of a region finds a resource, an operation or a
// cluster wherever it appears. Loggers take their keys from these constants; a test of the repository rejects literals.
// Add a constant here, with its meaning, when no existing key fits. Values never contain secrets.
package logkey

// Identity of a request, a resource or an operation.
const (
	UID             = "uid"               // UID of one incarnation of a resource of any kind.
	ResourceID      = "resource_id"       // ARM resource ID.
	SubscriptionID  = "subscription_id"   // Azure subscription ID.
	ResourceGroup   = "resource_group"    // Name of an Azure resource group.
	OperationID     = "operation_id"      // ID of an asynchronous operation.
	CorrelationID   = "correlation_id"    // x-ms-correlation-request-id of the request that caused the work.
	RequestID       = "request_id"        // x-ms-request-id of one request.
	ClusterUID      = "cluster_uid"       // UID of one incarnation of a cluster.
	ClusterID       = "cluster_id"        // Identifier of the cluster below ARM, part of names on the management cluster.
	NodePoolUID     = "node_pool_uid"     // UID of one incarnation of a node pool.
	ExternalAuthUID = "external_auth_uid" // UID of one incarnation of an external authentication.
	UpgradeUID      = "upgrade_uid"       // UID of one upgrade.
	UpgradePolicy   = "upgrade_policy"    // Name of an upgrade policy.
	BundleID        = "bundle_id"         // ID of a Maestro resource bundle.
	Work            = "work"              // Name or kind of a ManifestWork.
	Consumer        = "consumer"          // Maestro consumer: the name of a management cluster.
	Shard           = "shard"             // Provision shard.
)

// Objects on a management cluster or in a hosted cluster.
const (
	Namespace     = "namespace"      // Kubernetes namespace.
	Name          = "name"           // Name of an object whose kind the message or Kind states.
	HostedCluster = "hosted_cluster" // namespace/name of a HostedCluster.
	NodePool      = "node_pool"      // namespace/name of a HyperShift NodePool.
	ControlPlane  = "control_plane"  // Namespace of a hosted control plane.
	Node          = "node"           // Name of a Kubernetes Node.
	Condition     = "condition"      // Type of a status condition.
	Finalizers    = "finalizers"     // Finalizers that were removed from an object.
	DataLost      = "data_lost"      // Whether the data of a control plane was removed with it.
	Class         = "class"          // Class of break-glass credentials: customer or sre.
	AccessLevel   = "access_level"   // Level of an SRE's break-glass credential: reader or admin.
	Fingerprint   = "fingerprint"    // SHA-256 fingerprint of a certificate.
)

// What happened.
const (
	Error     = "error"     // Text of an error.
	Reason    = "reason"    // Machine-readable reason.
	Message   = "message"   // Text for people that another system reported.
	Actor     = "actor"     // Person who requested an action, in audit records.
	Emergency = "emergency" // Whether an elevation waived the approval of a second person.
	Ticket    = "ticket"    // Ticket that an engineer named as the occasion of an action.
	Desired   = "desired"   // Number of resources in Cosmos DB that were compared.
	InFleet   = "in_fleet"  // Number of resources in Cluster Service that were compared.
	Applied   = "applied"   // Number of desired states that were sent again.
	Deleted   = "deleted"   // Number of deletions that were sent again.
	Findings  = "findings"  // Findings of a comparison and their numbers.
	// ClaimedActor is the person that a document without a valid intent names; it proves nothing.
	ClaimedActor = "claimed_actor"
	Outcome      = "outcome"    // How an attempt ended.
	Action       = "action"     // Admin action or other named action.
	Step         = "step"       // Step of a graph, for example of a deletion.
	State        = "state"      // State of an object.
	Status       = "status"     // HTTP status code or status of an object.
	Kind         = "kind"       // Kind of an object.
	Type         = "type"       // Type of an event or a difference.
	Attempt      = "attempt"    // Number of the attempt, from 1.
	RetryIn      = "retry_in"   // Time until the next attempt.
	Duration     = "duration"   // How long something took.
	Count        = "count"      // Number of objects.
	Since        = "since"      // Beginning of a state, in RFC 3339.
	Limit        = "limit"      // Upper bound that applied.
	Generation   = "generation" // Generation of a desired state.
	// Generation that Cluster Service had accepted, and the one that it has now.
	AcceptedGeneration = "accepted_generation"
	FleetGeneration    = "fleet_generation"
	Revision           = "revision"    // Revision of the fleet's history.
	Version            = "version"     // Version of OpenShift, of an API or of a resource.
	Controller         = "controller"  // Name of a controller.
	Group              = "group"       // Partition group of subscriptions.
	Key                = "key"         // Key of a queue item or a document.
	KeyID              = "key_id"      // ID of a key of a keyset.
	Panic              = "panic"       // Value of a recovered panic.
	Stack              = "stack"       // Stack trace.
	RetryAfter         = "retry_after" // Retry-After of a response.
)

// Numbers of works in a resync between the Maestro server and an agent.
const (
	Held      = "held"      // Works that the agent has.
	Ordered   = "ordered"   // Deliveries that the resync ordered.
	Confirmed = "confirmed" // Deliveries that the resync confirmed, or clusters that confirmed a new rendering.
	Unwanted  = "unwanted"  // Works of the agent whose deletion was confirmed before.
	Unknown   = "unknown"   // Works of the agent that the server has no record of.
	Parts     = "parts"     // Messages that a list was split into.
)

// Requests, connections and processes.
const (
	Method     = "method"      // HTTP method or full gRPC method.
	Route      = "route"       // Route pattern of a request.
	Path       = "path"        // Path of a file or a URL.
	URL        = "url"         // URL without credentials.
	Address    = "address"     // Network address, host:port.
	Remote     = "remote"      // Network address of the peer.
	Client     = "client"      // Identity of the calling process or MQTT client ID.
	User       = "user"        // Person who asked for something.
	Topic      = "topic"       // MQTT topic.
	Broker     = "broker"      // Address of the MQTT broker.
	Process    = "process"     // Name of a child process.
	PID        = "pid"         // Process ID.
	Replica    = "replica"     // Identity of a replica.
	Container  = "container"   // Cosmos DB container.
	Migration  = "migration"   // Database migration.
	Location   = "location"    // Azure region.
	ReceivedBy = "received_by" // Component that received a message.
	Responder  = "responder"   // Component that responded to a request.
	Connection = "connection"  // ID of a network connection.
	Link       = "link"        // Link ID of a private endpoint.
	Host       = "host"        // Name of a host to which a client connects.
	Port       = "port"        // Port to which a client connects.
	Protocol   = "protocol"    // Protocol in which a client named the host: sni or connect.
	Sent       = "sent"        // Bytes from the client to the server of a connection.
	Received   = "received"    // Bytes from the server to the client of a connection.
)

// Requests to the frontend.
const (
	APIVersion      = "api_version"       // ARM api-version of a request.
	ClientRequestID = "client_request_id" // x-ms-client-request-id of a request.
	TraceID         = "trace_id"          // OpenTelemetry trace of a request.
	ErrorCode       = "error_code"        // ARM error code of a response.
	Violations      = "violations"        // Number of invalid fields.
	Fields          = "fields"            // Invalid fields.
	PreviousState   = "previous_state"    // State before a change.
)

// Audit records.
const (
	Record         = "record"           // Kind of the record; always "audit".
	Target         = "target"           // Object of an action.
	Caller         = "caller"           // Group: the authenticated caller.
	Sender         = "sender"           // Group: the authenticated sender of the caller's request, normally ARM.
	TenantID       = "tenant_id"        // Microsoft Entra tenant.
	ClientTenantID = "client_tenant_id" // Microsoft Entra tenant of the caller.
	ObjectID       = "object_id"        // Microsoft Entra object.
	AppID          = "app_id"           // Microsoft Entra application.
	Result         = "result"           // Success, Failure or Denied.
	Role           = "role"             // Role that a route requires.
)

// Audit records of the access to clusters.
const (
	CredentialUID = "credential_uid" // UID of a break-glass credential.
	RevocationUID = "revocation_uid" // UID of a revocation of break-glass credentials.
	Lifetime      = "lifetime"       // Requested lifetime of a certificate.
	Until         = "until"          // End of a certificate's validity.
	FirstUse      = "first_use"      // Time of the first use of a credential.
	LastUse       = "last_use"       // Time of the latest use of a credential.
	Addresses     = "addresses"      // Network addresses of the clients that used a credential.
	FirstRequest  = "first_request"  // Verb and resource of the first request with a credential.
)

// Numbers of clusters in a pass over all clusters.
const (
	Refused = "refused" // Clusters whose management cluster has refused the rendering.
)

// Actions and decisions of Cluster Service.
const (
	Decision   = "decision"    // Decision about a placement, as a sentence.
	Effect     = "effect"      // What an action changed, as a sentence.
	Due        = "due"         // Kind of rows that are due.
	Changes    = "changes"     // Settings that an action changed.
	Steps      = "steps"       // Steps of a graph.
	From       = "from"        // Value or version before a change.
	To         = "to"          // Value or version after a change.
	ActionUID  = "action_uid"  // UID of an action of an SRE.
	Known      = "known"       // Value that was stored before.
	Policy     = "policy"      // Policy, as text.
	LeftBehind = "left_behind" // What a forced step may have left behind.
)
