package adminv1

import (
	"cmp"
	"net/url"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Read declares a route that reads. Admin's route and OpenAPI document, the authorization of the route and the requests of hcpctl are derived from it.
type Read struct {
	// Name is the name of the route. Path is below Root, and has {name} wildcards. Summary describes the route in the OpenAPI document.
	Name, Path, Summary string
	// Role is required of the caller.
	Role Role
	// Sensitive is set for a route that is audited: it returns what every layer holds of a customer's cluster, or who has access to it.
	Sensitive bool
	// Query lists the query parameters. Admin refuses requests with others.
	Query []Parameter
	// Response is a value of the type of the response's body; nil if it is not JSON. ContentType is the media type of such a body.
	Response    any
	ContentType string
	// Timeout limits the duration of a request; 0 means the limit of other routes.
	Timeout time.Duration
}

// Parameter is a query parameter.
type Parameter struct {
	Name, Description string
	// Type is string, integer or boolean.
	Type string
}

// ReadOf is a Read whose response is an R.
type ReadOf[R any] struct{ Read }

// Target returns the path below Root of a request. values are those of the wildcards, in order.
func (r *Read) Target(values ...string) string { return expand(r.Path, values) }

// read declares a route whose response is an R. Without a role it requires Reader.
func read[R any](r Read) ReadOf[R] {
	var response R
	r.Role, r.Response = cmp.Or(r.Role, Reader), response
	return ReadOf[R]{r}
}

// paged adds the parameters of lists with pages.
func paged(parameters ...Parameter) []Parameter {
	return append(parameters, Parameter{Name: "pageSize", Type: "integer", Description: "Maximum number of items, 1 to 500. Default: 100."},
		Parameter{Name: "pageToken", Type: "string", Description: "The nextPageToken of the previous page."})
}

// The routes that read.
var (
	ReadClusters = read[ClusterList](Read{Name: "clusters.list", Path: "/clusters",
		Summary: "List the clusters that match `q`: a resource ID, name, UID, cluster ID, namespace, API host, subscription or resource group. Without `q` list a page of the fleet.",
		Query: paged(
			Parameter{Name: "q", Type: "string", Description: "Identifier to search for; at most 200 clusters are returned."},
			Parameter{Name: "subscription", Type: "string", Description: "Only clusters of this subscription, from ARM's documents."},
			Parameter{Name: "notReady", Type: "boolean", Description: "Only clusters that are not in their desired state, with their concerns; those that have waited longest first."},
			Parameter{Name: "olderThan", Type: "string", Description: "With notReady: only clusters that have waited at least this long, for example 10m."},
			Parameter{Name: "concern", Type: "string", Description: "With notReady: only these concerns, separated by commas; each is a layer, or a layer and a state as in node-pool/WaitingForNodes."},
			Parameter{Name: "shard", Type: "string", Description: "Only clusters on this provision shard; excludes q and subscription."},
			Parameter{Name: "version", Type: "string", Description: "Only clusters that have this release or are being changed to it: a full version such as 4.19.3, or its first two parts; excludes q and subscription."},
			Parameter{Name: "phase", Type: "string", Description: "Only clusters in these phases of Cluster Service, separated by commas, for example Installing,Failed; excludes q, subscription and notReady."})})
	ReadCluster = read[Cluster](Read{Name: "clusters.get", Path: "/clusters/{cluster}", Summary: "Get a cluster. {cluster} in a path is any identifier that `q` accepts, if it matches exactly one cluster."})
	ReadDump    = read[Dump](Read{Name: "clusters.dump", Path: "/clusters/{cluster}/dump", Sensitive: true, Summary: "Get what every layer holds of a cluster, without secrets."})

	ReadExplanation = read[Explanation](Read{Name: "clusters.explanation", Path: "/clusters/{cluster}/explanation",
		Summary: "Explain what a cluster and its children wait for, since when, who must act, and which command helps."})
	ReadTimeline = read[Timeline](Read{Name: "clusters.timeline", Path: "/clusters/{cluster}/timeline", Sensitive: true,
		Summary: "Get what happened to a cluster and its children within a period, from all layers, oldest first, and how their desired states changed.",
		Query: []Parameter{{Name: "from", Type: "string", Description: "Beginning of the period, RFC 3339. Default: 14 days ago."},
			{Name: "to", Type: "string", Description: "End of the period, RFC 3339. Default: now."}}})
	ReadClusterActions = read[ClusterActionList](Read{Name: "clusters.actions", Path: "/clusters/{cluster}/actions", Summary: "List the actions that Cluster Service executed on a cluster, newest first."})
	ReadClusterStatus  = read[ClusterStatus](Read{Name: "clusters.status", Path: "/clusters/{cluster}/status", Summary: "Get the progress of a cluster in each layer, and its conditions, as Cluster Service reports them."})
	ReadJournal        = read[Journal](Read{Name: "clusters.journal", Path: "/clusters/{cluster}/journal",
		Summary: "Get the state of a cluster's API and its transitions of the last 14 days, newest first, as monitor recorded them."})
	ReadAccessRecords = read[AccessRecordList](Read{Name: "clusters.accessRecords", Path: "/clusters/{cluster}/access-records", Query: paged(),
		Summary: "List who did something with a cluster or read sensitive data of it, and why, newest first: the audit records that the audit sink has. The response has the form of ARM's lists."})
	ReadAccesses = read[AccessList](Read{Name: "clusters.accesses", Path: "/clusters/{cluster}/accesses",
		Summary: "List the accesses of engineers to a cluster, newest first: who, when, why, by whose approval, with which sessions and credentials, and what was done. The response has the form of ARM's lists.",
		Query:   paged(Parameter{Name: "format", Type: "string", Description: "arm: the form for customers, with aliases and without names."})})

	ReadNodePools     = read[NodePoolList](Read{Name: "nodePools.list", Path: "/clusters/{cluster}/node-pools", Summary: "List the node pools of a cluster, in ARM and in the fleet."})
	ReadNodePool      = read[NodePool](Read{Name: "nodePools.get", Path: "/clusters/{cluster}/node-pools/{pool}", Summary: "Get a node pool by name."})
	ReadCredentials   = read[CredentialList](Read{Name: "credentials.list", Path: "/clusters/{cluster}/credentials", Sensitive: true, Summary: "List the break-glass credentials of a cluster, without certificates, and the revocations."})
	ReadCredential    = read[FleetCredential](Read{Name: "credentials.get", Path: "/credentials/{credential}", Sensitive: true, Summary: "Get a credential. A credential of class sre includes its certificate, which is usable only with the private key."})
	ReadWorks         = read[BundleList](Read{Name: "works.list", Path: "/clusters/{cluster}/works", Sensitive: true, Summary: "List the Maestro bundles of a cluster with their status, without secrets."})
	ReadARMOperations = read[ARMOperationList](Read{Name: "armOperations.list", Path: "/clusters/{cluster}/arm-operations", Summary: "List the ARM operations of a cluster and its children, newest first."})
	ReadARMOperation  = read[ARMOperation](Read{Name: "armOperations.get", Path: "/arm-operations/{operation}", Summary: "Get an ARM operation of any subscription."})

	ReadDeletions = read[DeletionList](Read{Name: "deletions.list", Path: "/deletions", Summary: "List the deletions in progress with their steps. Children that are deleted with their cluster are part of its deletion.",
		Query: []Parameter{{Name: "stuck", Type: "boolean", Description: "Only deletions with a stuck step."}}})
	ReadDeletion  = read[ClusterDeletion](Read{Name: "deletions.get", Path: "/clusters/{cluster}/deletion", Summary: "Get the deletion of a cluster, or else those of its children."})
	ReadLeftovers = read[LeftoverList](Read{Name: "deletions.leftovers", Path: "/deletion-leftovers", Summary: "List what forced deletions left behind.",
		Query: []Parameter{{Name: "cluster", Type: "string", Description: "Only leftovers of this cluster."}, {Name: "gone", Type: "boolean", Description: "Include leftovers that are gone."}}})

	ReadUpgrades = read[UpgradeList](Read{Name: "upgrades.region", Path: "/upgrades", Summary: "List the upgrades of the region. Ended upgrades are kept for a week.",
		Query: paged(Parameter{Name: "active", Type: "boolean", Description: "Only upgrades in progress."})})
	ReadUpgrade         = read[FleetUpgrade](Read{Name: "upgrades.get", Path: "/upgrades/{upgrade}", Summary: "Get an upgrade."})
	ReadClusterUpgrades = read[UpgradeList](Read{Name: "upgrades.list", Path: "/clusters/{cluster}/upgrades", Summary: "List the upgrades of a cluster."})
	ReadUpgradePlan     = read[Message[*csv1.UpgradePlan]](Read{Name: "upgrades.plan", Path: "/clusters/{cluster}/upgrade-plan", Summary: "Get the steps, gates, refusals and possible targets of an upgrade.",
		Query: []Parameter{{Name: "version", Type: "string", Description: "MAJOR.MINOR.PATCH. Default: the newest release of the cluster's minor version."},
			{Name: "nodePools", Type: "string", Description: "The node pools that follow: none (the default), unpinned or all."}}})
	ReadUpgradePolicies = read[UpgradePolicyList](Read{Name: "upgradePolicies.list", Path: "/upgrade-policies", Summary: "List the upgrade policies."})
	ReadUpgradePolicy   = read[Message[*csv1.UpgradePolicy]](Read{Name: "upgradePolicies.get", Path: "/upgrade-policies/{policy}", Summary: "Get an upgrade policy with its progress."})

	ReadRegionExplanation = read[RegionExplanation](Read{Name: "region.explanation", Path: "/explanation",
		Summary: "Explain the region: which components are away since when, how many clusters are affected, and what waiting clusters have in common."})
	ReadAlerts       = read[AlertList](Read{Name: "alerts.list", Path: "/alerts", Summary: "List the firing alerts of the region and the silences. A list that cannot be read is absent and named in `unavailable`."})
	ReadShards       = read[ShardList](Read{Name: "shards.list", Path: "/shards", Summary: "List the provision shards with their load."})
	ReadShard        = read[Message[*csv1.ProvisionShardReport]](Read{Name: "shards.get", Path: "/shards/{shard}", Summary: "Get a provision shard with its load and history."})
	ReadDrainPlan    = read[Message[*csv1.DrainPlan]](Read{Name: "shards.drainPlan", Path: "/shards/{shard}/drain-plan", Summary: "Get where the clusters of a provision shard would go."})
	ReadPlacement    = read[Message[*csv1.PlacementExplanation]](Read{Name: "placement.explain", Path: "/clusters/{cluster}/placement", Summary: "Explain the placement of a cluster."})
	ReadOrphans      = read[OrphanList](Read{Name: "orphans.list", Path: "/orphans", Summary: "List Maestro bundles that belong to no ManifestWork."})
	ReadAzureOrphans = read[AzureOrphanList](Read{Name: "azureOrphans.list", Path: "/azure-orphans",
		Summary: "List resources in Azure that claim to belong to a cluster which does not exist, with the proof of its deletion."})
	ReadDrift       = read[DriftList](Read{Name: "drift.list", Path: "/drift", Summary: "Compare ARM's documents with the fleet and list the differences without an operation in progress."})
	ReadQuota       = read[Quota](Read{Name: "quotas.get", Path: "/subscriptions/{subscription}/quota", Summary: "Get the quota of a subscription and how much of it is used."})
	ReadEgressLinks = read[EgressLinkList](Read{Name: "egressLinks.list", Path: "/egress-links", Summary: "List the links of the egress gateway, with those that were removed within a day."})

	ReadMe             = read[Identity](Read{Name: "me", Path: "/me", Summary: "Get the identity and the roles of the caller."})
	ReadAccessSessions = read[AccessSessionList](Read{Name: "accessSessions.list", Path: "/access-sessions", Summary: "List access sessions, newest first; at most 1000. Ended sessions are kept for 30 days.",
		Query: []Parameter{{Name: "open", Type: "boolean", Description: "Only sessions that have not ended."}, {Name: "cluster", Type: "string", Description: "Only sessions of this cluster; any identifier."},
			{Name: "shard", Type: "string", Description: "Only sessions of the management cluster of this provision shard, or of service-cluster; excludes cluster."}}})
	ReadAccessSession = read[AccessSession](Read{Name: "accessSessions.get", Path: "/access-sessions/{session}", Summary: "Get an access session."})
	ReadRecordings    = read[RecordingList](Read{Name: "recordings.list", Path: "/recordings", Summary: "List the recordings of commands in access sessions, newest first; at most 1000. They are kept for 90 days.",
		Query: []Parameter{{Name: "cluster", Type: "string", Description: "Only recordings of this cluster; any identifier."},
			{Name: "session", Type: "string", Description: "Only recordings of the access session with this ID."}}})
	ReadRecording  = read[Recording](Read{Name: "recordings.get", Path: "/recordings/{recording}", Summary: "Describe a recording."})
	ReadElevations = read[ElevationList](Read{Name: "elevations.list", Path: "/elevations", Summary: "List elevations, newest first.", Query: paged(
		Parameter{Name: "active", Type: "boolean", Description: "Only active elevations."},
		Parameter{Name: "open", Type: "boolean", Description: "Only elevations that are active or can become so."},
		Parameter{Name: "state", Type: "string", Description: "Only elevations in this state: Requested, Approved, Denied, Active or Ended."},
		Parameter{Name: "unreviewed", Type: "boolean", Description: "Only emergency elevations that nobody has reviewed."},
		Parameter{Name: "actor", Type: "string", Description: "Only elevations of the caller with this object ID."})})
	ReadElevation = read[Elevation](Read{Name: "elevations.get", Path: "/elevations/{elevation}", Summary: "Get an elevation.",
		Query: []Parameter{{Name: "while", Type: "string", Description: "Wait until the elevation is in another state, for at most 25 seconds."}}})
	ReadOperations = read[OperationList](Read{Name: "operations.list", Path: "/operations", Summary: "List admin operations, newest first.", Query: paged(
		Parameter{Name: "cluster", Type: "string", Description: "Only operations on this cluster; any identifier."}, Parameter{Name: "state", Type: "string", Description: "Only operations in this state."},
		Parameter{Name: "actor", Type: "string", Description: "Only operations of the caller with this object ID."})})
	ReadOperation = read[Operation](Read{Name: "operations.get", Path: "/operations/{operation}", Summary: "Get an admin operation."})
	ReadAudit     = read[AuditList](Read{Name: "audit.list", Path: "/audit", Summary: "List audit records, newest first: operations and elevations, kept for 400 days.",
		Query: paged(Parameter{Name: "actor", Type: "string", Description: "Only records of the caller with this object ID."})})

	ReadRecordingContent = Read{Name: "recordings.content", Path: "/recordings/{recording}/content", Role: BreakGlass, Sensitive: true, ContentType: AsciicastType, Timeout: 10 * time.Minute,
		Summary: "Get a recording as an asciicast of version 2: what the engineer typed, which may contain secrets, and what the pod showed. Of a recording in progress, get what is exported. " +
			"If the recording was changed, the response ends with an error before the change.",
		Query: []Parameter{{Name: "unverified", Type: "boolean", Description: "Do not verify the signature of the session gateway: the recording may be forged. The title of the asciicast begins with NOT VERIFIED."}}}
)

// Reads returns all routes that read.
func Reads() []Read {
	return []Read{
		ReadClusters.Read, ReadCluster.Read, ReadDump.Read, ReadExplanation.Read, ReadTimeline.Read, ReadClusterActions.Read, ReadClusterStatus.Read,
		ReadJournal.Read, ReadAccessRecords.Read, ReadAccesses.Read, ReadNodePools.Read, ReadNodePool.Read, ReadCredentials.Read, ReadCredential.Read,
		ReadWorks.Read, ReadARMOperations.Read, ReadARMOperation.Read, ReadDeletions.Read, ReadDeletion.Read, ReadLeftovers.Read, ReadUpgrades.Read,
		ReadUpgrade.Read, ReadClusterUpgrades.Read, ReadUpgradePlan.Read, ReadUpgradePolicies.Read, ReadUpgradePolicy.Read, ReadRegionExplanation.Read,
		ReadAlerts.Read, ReadShards.Read, ReadShard.Read, ReadDrainPlan.Read, ReadPlacement.Read, ReadOrphans.Read, ReadAzureOrphans.Read, ReadDrift.Read,
		ReadQuota.Read, ReadEgressLinks.Read, ReadMe.Read, ReadAccessSessions.Read, ReadAccessSession.Read, ReadRecordings.Read, ReadRecording.Read,
		ReadElevations.Read, ReadElevation.Read, ReadOperations.Read, ReadOperation.Read, ReadAudit.Read, ReadRecordingContent,
	}
}

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l ClusterList) Page() (items []Cluster, next string) { return l.Items, l.NextPageToken }

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l UpgradeList) Page() (items []FleetUpgrade, next string) { return l.Items, l.NextPageToken }

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l OperationList) Page() (items []Operation, next string) { return l.Items, l.NextPageToken }

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l AuditList) Page() (items []AuditEntry, next string) { return l.Items, l.NextPageToken }

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l ElevationList) Page() (items []Elevation, next string) { return l.Items, l.NextPageToken }

// Page returns the items of a page, and the token of the next one; empty on the last page.
func (l AccessList) Page() (items []Access, next string) {
	link, err := url.Parse(l.NextLink)
	if err != nil {
		return l.Value, ""
	}
	return l.Value, link.Query().Get("pageToken")
}
