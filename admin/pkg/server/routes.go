package server

import (
	"net/http"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Routes returns all routes of the API. Their handlers are not usable; the routes describe the API.
func Routes() []Route { return (&Server{}).routes() }

func (s *Server) routes() []Route {
	return slices.Concat(s.clusterRoutes(), s.childRoutes(), s.deletionRoutes(), s.upgradeRoutes(), s.regionRoutes(), s.alertRoutes(), s.quotaRoutes(), s.egressLinkRoutes(), s.elevationRoutes(), s.accessSessionRoutes(), s.recordingRoutes(), s.operationRoutes())
}

// readRoute returns a route that reads.
func readRoute(path, name, summary string, response any, handle handler, query ...Parameter) Route {
	return Route{
		Method: http.MethodGet, Path: path, Name: name, Summary: summary, Role: adminv1.Reader, Response: response, Status: http.StatusOK,
		handle: handle, Query: query,
	}
}

// sensitive returns a route that is audited although it only reads.
func sensitive(r Route) Route {
	r.Sensitive = true
	return r
}

// changeRoute returns a route that stores a requested action as an admin operation.
func changeRoute(method, path, name, summary string, role adminv1.Role, body any, handle handler) Route {
	return Route{
		Method: method, Path: path, Name: name, Summary: summary, Role: role, Mutates: true, Request: body, Response: adminv1.Operation{},
		Status: http.StatusAccepted, handle: handle,
	}
}

const clusterPath = adminv1.Root + "/clusters/{cluster}"

func (s *Server) clusterRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: adminv1.Root + "/clusters", Name: "clusters.list",
			Summary: "List the clusters that match `q`: a resource ID, name, UID, cluster ID, namespace, API host, subscription or resource group. Without `q` list a page of the fleet.",
			Role:    adminv1.Reader, Response: adminv1.ClusterList{}, Status: http.StatusOK, handle: s.listClusters,
			Query: append([]Parameter{
				{Name: "q", Type: "string", Description: "Identifier to search for; at most 200 clusters are returned."},
				{Name: "subscription", Type: "string", Description: "Only clusters of this subscription, from ARM's documents."},
				{Name: "notReady", Type: "boolean", Description: "Only clusters that are not in their desired state, with their concerns; those that have waited longest first."},
				{Name: "olderThan", Type: "string", Description: "With notReady: only clusters that have waited at least this long, for example 10m."},
				{Name: "concern", Type: "string", Description: "With notReady: only these concerns, separated by commas; each is a layer, or a layer and a state as in node-pool/WaitingForNodes."},
				{Name: "shard", Type: "string", Description: "Only clusters on this provision shard; excludes q and subscription."},
				{Name: "version", Type: "string", Description: "Only clusters that have this release or are being changed to it: a full version such as 4.19.3, or its first two parts; excludes q and subscription."},
				{Name: "phase", Type: "string", Description: "Only clusters in these phases of Cluster Service, separated by commas, for example Installing,Failed; excludes q, subscription and notReady."},
			}, paging...),
		},
		{
			Method: http.MethodGet, Path: clusterPath, Name: "clusters.get",
			Summary: "Get a cluster. {cluster} in a path is any identifier that `q` accepts, if it matches exactly one cluster.",
			Role:    adminv1.Reader, Response: adminv1.Cluster{}, Status: http.StatusOK, handle: s.getCluster,
		},
		{
			Method: http.MethodGet, Path: clusterPath + "/dump", Name: "clusters.dump",
			Summary: "Get what every layer holds of a cluster, without secrets.",
			Role:    adminv1.Reader, Response: adminv1.Dump{}, Status: http.StatusOK, handle: s.dumpCluster, Sensitive: true,
		},
		readRoute(clusterPath+"/explanation", "clusters.explanation", "Explain what a cluster and its children wait for, since when, who must act, and which command helps.", adminv1.Explanation{}, s.explainCluster),
		readRoute(clusterPath+"/status", "clusters.status", "Get the progress of a cluster in each layer, and its conditions, as Cluster Service reports them.", adminv1.ClusterStatus{}, s.showStatus),
		readRoute(clusterPath+"/journal", "clusters.journal", "Get the state of a cluster's API and its transitions of the last 14 days, newest first, as monitor recorded them.", adminv1.Journal{}, s.showJournal),
		readRoute(clusterPath+"/actions", "clusters.actions", "List the actions that Cluster Service executed on a cluster, newest first.", adminv1.ClusterActionList{}, s.listClusterActions),
		readRoute(clusterPath+"/access-records", "clusters.accessRecords",
			"List who did something with a cluster or read sensitive data of it, and why, newest first: the audit records that the audit sink has. The response has the form of ARM's lists.",
			adminv1.AccessRecordList{}, s.listAccessRecords, paging...),
		readRoute(clusterPath+"/accesses", "clusters.accesses",
			"List the accesses of engineers to a cluster, newest first: who, when, why, by whose approval, with which sessions and credentials, and what was done. The response has the form of ARM's lists.",
			adminv1.AccessList{}, s.listAccesses,
			append([]Parameter{{Name: "format", Type: "string", Description: "arm: the form for customers, with aliases and without names."}}, paging...)...),
		sensitive(readRoute(clusterPath+"/timeline", "clusters.timeline",
			"Get what happened to a cluster and its children within a period, from all layers, oldest first, and how their desired states changed.", adminv1.Timeline{}, s.showTimeline,
			Parameter{Name: "from", Type: "string", Description: "Beginning of the period, RFC 3339. Default: 14 days ago."},
			Parameter{Name: "to", Type: "string", Description: "End of the period, RFC 3339. Default: now."})),
		changeRoute(http.MethodPost, clusterPath+"/pause", adminv1.ActionClusterPause,
			"Pause HyperShift's reconciliation of the control plane and the node pools. Running workloads are not affected.", adminv1.Operator, adminv1.PauseRequest{}, s.pauseCluster),
		changeRoute(http.MethodPost, clusterPath+"/resume", adminv1.ActionClusterResume, "Resume the reconciliation of a paused cluster.", adminv1.Operator, nil,
			forwarded(s, clusterTarget[*clusterservicev1.ResumeClusterRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/set-size", adminv1.ActionClusterSetSize,
			"Override the size class of the control plane, or remove the override.", adminv1.Operator, adminv1.SetSizeRequest{}, s.setClusterSize),
		changeRoute(http.MethodPost, clusterPath+"/retry", adminv1.ActionClusterRetry,
			"Retry all pending steps of a cluster immediately: placement, publishing of works, and steps in Azure.", adminv1.Operator, nil,
			forwarded(s, clusterTarget[*clusterservicev1.RetryClusterRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/force", adminv1.ActionClusterForce,
			"Stop waiting for a stuck Azure step of a cluster in creation. The step is still retried.", adminv1.BreakGlass,
			adminv1.Message[*clusterservicev1.ForceClusterStepRequest]{}, forwarded(s, clusterTarget[*clusterservicev1.ForceClusterStepRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/accept-control-plane", adminv1.ActionClusterAccept,
			"Accept the new, empty control plane of a cluster whose control plane was removed from its management cluster. The data of the removed one is lost.", adminv1.BreakGlass,
			adminv1.Message[*clusterservicev1.AcceptControlPlaneRequest]{}, forwarded(s, clusterTarget[*clusterservicev1.AcceptControlPlaneRequest](s))),
	}
}

// childRoutes returns the routes of the children of clusters.
func (s *Server) childRoutes() []Route {
	return []Route{
		readRoute(clusterPath+"/node-pools", "nodePools.list", "List the node pools of a cluster, in ARM and in the fleet.", adminv1.NodePoolList{}, s.listNodePools),
		readRoute(clusterPath+"/node-pools/{pool}", "nodePools.get", "Get a node pool by name.", adminv1.NodePool{}, s.getNodePool),
		changeRoute(http.MethodPost, clusterPath+"/node-pools/{pool}/scale", adminv1.ActionNodePoolScale,
			"Set the size of a node pool in the customer's place. ARM shows it as an update.", adminv1.Operator, adminv1.ScaleRequest{}, s.scaleNodePool),
		sensitive(readRoute(clusterPath+"/credentials", "credentials.list", "List the break-glass credentials of a cluster, without certificates, and the revocations.", adminv1.CredentialList{}, s.listCredentials)),
		sensitive(readRoute(adminv1.Root+"/credentials/{credential}", "credentials.get", "Get a credential. A credential of class sre includes its certificate, which is usable only with the private key.",
			adminv1.FleetCredential{}, s.getCredential)),
		changeRoute(http.MethodPost, clusterPath+"/credentials", adminv1.ActionCredentialRequest,
			"Request a credential of class sre. Its UID is the ID of the operation. The level admin requires the role break-glass.", adminv1.Operator, adminv1.CredentialRequest{}, s.requestCredential),
		changeRoute(http.MethodPost, clusterPath+"/credentials/revoke", adminv1.ActionCredentialRevoke,
			"Revoke all credentials of a class by replacing its signer.", adminv1.Operator, adminv1.RevokeRequest{}, s.revokeCredentials),
		changeRoute(http.MethodPost, clusterPath+"/credentials/{credential}/revoke", adminv1.ActionCredentialRevokeOne,
			"Revoke one credential of class sre, and the others that were requested for its cluster with the same elevation. None is issued with this elevation any more. The API server accepts a certificate until it expires, at most 15 minutes after it was signed.",
			adminv1.Operator, nil, s.revokeCredential),
		sensitive(readRoute(clusterPath+"/works", "works.list", "List the Maestro bundles of a cluster with their status, without secrets.", adminv1.BundleList{}, s.listBundles)),
		readRoute(clusterPath+"/arm-operations", "armOperations.list", "List the ARM operations of a cluster and its children, newest first.", adminv1.ARMOperationList{}, s.listARMOperations),
		readRoute(adminv1.Root+"/arm-operations/{operation}", "armOperations.get", "Get an ARM operation of any subscription.", adminv1.ARMOperation{}, s.getARMOperation),
		changeRoute(http.MethodPost, adminv1.Root+"/arm-operations/{operation}/retry", adminv1.ActionARMOperationRetry,
			"Retry an ARM operation immediately.", adminv1.Operator, nil, s.onARMOperation),
		changeRoute(http.MethodPost, adminv1.Root+"/arm-operations/{operation}/cancel", adminv1.ActionARMOperationCancel,
			"Cancel a create or update operation of ARM. Changes that Cluster Service accepted stay.", adminv1.BreakGlass, nil, s.onARMOperation),
	}
}

func (s *Server) deletionRoutes() []Route {
	return []Route{
		changeRoute(http.MethodPost, clusterPath+"/deletion/retry", adminv1.ActionDeletionRetry, "Retry all running deletion steps immediately, in Cluster Service and in ARM.",
			adminv1.Operator, nil, forwarded(s, clusterTarget[*clusterservicev1.RetryDeletionRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/deletion/release", adminv1.ActionDeletionRelease, "Release finalizers that block a deletion step.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.ReleaseDeletionFinalizersRequest]{}, forwarded(s, stepTarget[*clusterservicev1.ReleaseDeletionFinalizersRequest](s, releaseRefusal))),
		changeRoute(http.MethodPost, clusterPath+"/deletion/force", adminv1.ActionDeletionForce, "Stop waiting for a deletion step of Cluster Service. Leftovers are listed. Steps in ARM are rejected.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.ForceDeletionStepRequest]{}, forwarded(s, stepTarget[*clusterservicev1.ForceDeletionStepRequest](s, deletion.ForceRefusal))),
		readRoute(adminv1.Root+"/deletions", "deletions.list", "List the deletions in progress with their steps. Children that are deleted with their cluster are part of its deletion.", adminv1.DeletionList{},
			s.listDeletions, Parameter{Name: "stuck", Type: "boolean", Description: "Only deletions with a stuck step."}),
		readRoute(clusterPath+"/deletion", "deletions.get", "Get the deletion of a cluster, or else those of its children.", adminv1.ClusterDeletion{}, s.getDeletion),
		readRoute(adminv1.Root+"/deletion-leftovers", "deletions.leftovers", "List what forced deletions left behind.", adminv1.LeftoverList{}, s.listLeftovers,
			Parameter{Name: "cluster", Type: "string", Description: "Only leftovers of this cluster."},
			Parameter{Name: "gone", Type: "boolean", Description: "Include leftovers that are gone."}),
	}
}

func (s *Server) upgradeRoutes() []Route {
	const upgrade, policy = adminv1.Root + "/upgrades/{upgrade}", adminv1.Root + "/upgrade-policies/{policy}"
	return []Route{
		readRoute(adminv1.Root+"/upgrades", "upgrades.region", "List the upgrades of the region. Ended upgrades are kept for a week.", adminv1.UpgradeList{}, s.listRegionUpgrades,
			append([]Parameter{{Name: "active", Type: "boolean", Description: "Only upgrades in progress."}}, paging...)...),
		readRoute(clusterPath+"/upgrades", "upgrades.list", "List the upgrades of a cluster.", adminv1.UpgradeList{}, s.listUpgrades),
		readRoute(clusterPath+"/upgrade-plan", "upgrades.plan", "Get the steps, gates, refusals and possible targets of an upgrade.",
			adminv1.Message[*clusterservicev1.UpgradePlan]{}, s.planUpgrade,
			Parameter{Name: "version", Type: "string", Description: "MAJOR.MINOR.PATCH. Default: the newest release of the cluster's minor version."},
			Parameter{Name: "nodePools", Type: "string", Description: "The node pools that follow: none (the default), unpinned or all."}),
		changeRoute(http.MethodPost, clusterPath+"/upgrades", adminv1.ActionUpgradeStart, "Start an upgrade. Its UID is the ID of the operation. Acknowledging gates requires the role break-glass.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.StartUpgradeRequest]{}, forwarded(s, s.upgradeTarget)),
		readRoute(upgrade, "upgrades.get", "Get an upgrade.", adminv1.Message[*clusterservicev1.Upgrade]{}, s.getUpgrade),
		changeRoute(http.MethodPost, upgrade+"/pause", adminv1.ActionUpgradePause, "Pause an upgrade. Started steps continue.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.PauseUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/resume", adminv1.ActionUpgradeResume, "Resume a paused upgrade.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.ResumeUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/abort", adminv1.ActionUpgradeAbort, "Abort the steps of an upgrade that have not started.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.AbortUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/acknowledge", adminv1.ActionUpgradeAcknowledge, "Acknowledge a gate of an upgrade.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.AcknowledgeUpgradeGateRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.AcknowledgeUpgradeGateRequest]("upgrade", "upgrade", "uid"))),
		readRoute(adminv1.Root+"/upgrade-policies", "upgradePolicies.list", "List the upgrade policies.", adminv1.UpgradePolicyList{}, s.listUpgradePolicies),
		readRoute(policy, "upgradePolicies.get", "Get an upgrade policy with its progress.", adminv1.Message[*clusterservicev1.UpgradePolicy]{}, s.getUpgradePolicy),
		changeRoute(http.MethodPut, policy, adminv1.ActionUpgradePolicyApply, "Create or replace an upgrade policy.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.ApplyUpgradePolicyRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.ApplyUpgradePolicyRequest]("upgradePolicy", "policy", "name"))),
		changeRoute(http.MethodDelete, policy, adminv1.ActionUpgradePolicyDelete, "Delete an upgrade policy. Its upgrades in progress continue.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.DeleteUpgradePolicyRequest]("upgradePolicy", "policy", "name"))),
	}
}

// regionRoutes returns the routes of objects that belong to no cluster.
func (s *Server) regionRoutes() []Route {
	const shard = adminv1.Root + "/shards/{shard}"
	return []Route{
		readRoute(adminv1.Root+"/explanation", "region.explanation", "Explain the region: which components are away since when, how many clusters are affected, and what waiting clusters have in common.",
			adminv1.RegionExplanation{}, s.explainRegion),
		readRoute(adminv1.Root+"/shards", "shards.list", "List the provision shards with their load.", adminv1.ShardList{}, s.listShards),
		changeRoute(http.MethodPatch, shard, adminv1.ActionShardUpdate, "Cordon or uncordon a provision shard, or override its capacity, zones, size classes or labels.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.UpdateProvisionShardRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.UpdateProvisionShardRequest](adminv1.TargetShard, "shard", "name"))),
		readRoute(shard, "shards.get", "Get a provision shard with its load and history.", adminv1.Message[*clusterservicev1.ProvisionShardReport]{}, s.getShard),
		changeRoute(http.MethodPut, shard, adminv1.ActionShardRegister, "Register a provision shard. Its Maestro consumer has the same name.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.RegisterProvisionShardRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.RegisterProvisionShardRequest](adminv1.TargetShard, "shard", "name"))),
		changeRoute(http.MethodDelete, shard, adminv1.ActionShardDeregister, "Deregister an empty provision shard.",
			adminv1.BreakGlass, nil, forwarded(s, pathTarget[*clusterservicev1.DeregisterProvisionShardRequest](adminv1.TargetShard, "shard", "name"))),
		readRoute(shard+"/drain-plan", "shards.drainPlan", "Get where the clusters of a provision shard would go.", adminv1.Message[*clusterservicev1.DrainPlan]{}, s.planDrain),
		changeRoute(http.MethodPost, shard+"/drain", adminv1.ActionShardDrain, "Cordon a provision shard permanently. No cluster is moved.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.DrainProvisionShardRequest](adminv1.TargetShard, "shard", "name"))),
		readRoute(clusterPath+"/placement", "placement.explain", "Explain the placement of a cluster.", adminv1.Message[*clusterservicev1.PlacementExplanation]{}, s.explainPlacement),
		changeRoute(http.MethodPut, clusterPath+"/placement", adminv1.ActionPlacementSet, "Set placement rules for a cluster, which override those of the region.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.SetPlacementPolicyRequest]{}, forwarded(s, s.placementTarget)),
		readRoute(adminv1.Root+"/orphans", "orphans.list", "List Maestro bundles that belong to no ManifestWork.", adminv1.OrphanList{}, s.listOrphans),
		changeRoute(http.MethodDelete, adminv1.Root+"/orphans/{bundle}", adminv1.ActionOrphanDelete, "Delete an orphaned bundle and its objects on the management cluster.",
			adminv1.BreakGlass, nil, s.deleteOrphan),
		readRoute(adminv1.Root+"/azure-orphans", "azureOrphans.list", "List resources in Azure that claim to belong to a cluster which does not exist, with the proof of its deletion.", adminv1.AzureOrphanList{}, s.listAzureOrphans),
		readRoute(adminv1.Root+"/drift", "drift.list", "Compare ARM's documents with the fleet and list the differences without an operation in progress.", adminv1.DriftList{}, s.listDrift),
		changeRoute(http.MethodPost, adminv1.Root+"/drift/reconcile", adminv1.ActionDriftReconcile, "Compare the region and send lost resources to the fleet again.",
			adminv1.Operator, nil, s.reconcileDrift),
		changeRoute(http.MethodDelete, adminv1.Root+"/drift/{uid}", adminv1.ActionDriftDelete, "Delete a resource from the fleet that ARM does not have.",
			adminv1.BreakGlass, nil, s.deleteDrift),
	}
}

// of returns the parameters of lists of records of engineers.
func of(noun string) []Parameter {
	return append([]Parameter{{Name: "actor", Type: "string", Description: "Only " + noun + " of the caller with this object ID."}}, paging...)
}

// endsOwnAccess is the Route.WithoutClaims of the routes that end access.
const endsOwnAccess = "engineers can always end their own access; ending that of others requires the claims of break-glass"

// elevationRoutes returns the routes of elevations. The access policy decides who may use those of a second person.
func (s *Server) elevationRoutes() []Route {
	const elevations, one = adminv1.Root + "/elevations", adminv1.Root + "/elevations/{elevation}"
	transition := func(verb, summary string, body any, handle handler) Route {
		return Route{
			Method: http.MethodPost, Path: one + "/" + verb, Name: "elevations." + verb, Summary: summary, Role: adminv1.Operator,
			Request: body, Response: adminv1.Elevation{}, Status: http.StatusOK, handle: handle,
		}
	}
	return []Route{
		{
			Method: http.MethodPost, Path: elevations, Name: "elevations.create", Repeatable: true,
			Summary: "Request an elevation of the caller for a class of actions, for a limited time. It becomes active at once, or waits for the approval of a second person if the access policy requires one.",
			Role:    adminv1.Operator, Request: adminv1.ElevationRequest{}, Response: adminv1.Elevation{}, Status: http.StatusCreated, handle: s.createElevation,
		},
		readRoute(elevations, "elevations.list", "List elevations, newest first.", adminv1.ElevationList{}, s.listElevations, append([]Parameter{
			{Name: "active", Type: "boolean", Description: "Only active elevations."},
			{Name: "open", Type: "boolean", Description: "Only elevations that are active or can become so."},
			{Name: "state", Type: "string", Description: "Only elevations in this state: Requested, Approved, Denied, Active or Ended."},
			{Name: "unreviewed", Type: "boolean", Description: "Only emergency elevations that nobody has reviewed."},
		}, of("elevations")...)...),
		readRoute(one, "elevations.get", "Get an elevation.", adminv1.Elevation{}, s.getElevation,
			Parameter{Name: "while", Type: "string", Description: "Wait until the elevation is in another state, for at most 25 seconds."}),
		transition("approve", "Approve the request of another engineer.", adminv1.DecisionRequest{}, s.decideElevation(true)),
		transition("deny", "Deny the request of another engineer.", adminv1.DecisionRequest{}, s.decideElevation(false)),
		transition("activate", "Activate the caller's approved elevation. Its duration begins.", nil, s.activateElevation),
		transition("review", "Review an emergency elevation of another engineer that is over.", adminv1.ReviewRequest{}, s.reviewElevation),
		{
			Method: http.MethodDelete, Path: one, Name: "elevations.end",
			Summary: "End an elevation at once and revoke its credentials, or withdraw a request: the caller's own, or any with the role break-glass.",
			Role:    adminv1.Operator, Response: adminv1.Elevation{}, Status: http.StatusOK, handle: s.endElevation,
			WithoutClaims: endsOwnAccess,
		},
	}
}

func (s *Server) accessSessionRoutes() []Route {
	const sessions, one = adminv1.Root + "/access-sessions", adminv1.Root + "/access-sessions/{session}"
	return []Route{
		changeRoute(http.MethodPost, clusterPath+"/access-sessions", adminv1.ActionAccessSessionRequest,
			"Request a session at the session gateway for the API server of a cluster. Its ID is the ID of the operation. The gateway holds the private key, and each request needs the token of the engineer. The mode read permits everything that the level reader permits. The mode admin permits everything, also commands in pods and port forwarding; it requires an elevation of the class break-glass.",
			adminv1.Operator, adminv1.AccessSessionRequest{}, s.requestAccessSession),
		changeRoute(http.MethodPost, adminv1.Root+"/shards/{shard}/access-sessions", adminv1.ActionShardSessionRequest,
			"Request a session at the session gateway for the API server of the management cluster of a provision shard. Its ID is the ID of the operation. The gateway holds the token, and each request needs the token of the engineer. The elevation must be for the whole region. The mode read permits to read everything but Secrets. The mode admin permits everything; it requires an elevation of the class break-glass.",
			adminv1.Operator, adminv1.AccessSessionRequest{}, s.requestShardSession),
		changeRoute(http.MethodPost, adminv1.Root+"/service-cluster/access-sessions", adminv1.ActionServiceClusterSessionRequest,
			"Request a session at the session gateway for the API server of the service cluster. Its ID is the ID of the operation. Everything else is as for a management cluster. A region without a service cluster responds with the status 409.",
			adminv1.Operator, adminv1.AccessSessionRequest{}, s.requestServiceClusterSession),
		readRoute(sessions, "accessSessions.list", "List access sessions, newest first; at most 1000. Ended sessions are kept for 30 days.", adminv1.AccessSessionList{}, s.listAccessSessions,
			Parameter{Name: "open", Type: "boolean", Description: "Only sessions that have not ended."},
			Parameter{Name: "cluster", Type: "string", Description: "Only sessions of this cluster; any identifier."},
			Parameter{Name: "shard", Type: "string", Description: "Only sessions of the management cluster of this provision shard, or of service-cluster; excludes cluster."}),
		readRoute(one, "accessSessions.get", "Get an access session.", adminv1.AccessSession{}, s.getAccessSession),
		{
			Method: http.MethodDelete, Path: one, Name: "accessSessions.end",
			Summary: "End an access session: the gateway closes its connections and forgets its key. The caller's own, or any with the role break-glass. The end of its elevation ends it too.",
			Role:    adminv1.Operator, Response: adminv1.AccessSession{}, Status: http.StatusOK, handle: s.endAccessSession,
			WithoutClaims: endsOwnAccess,
		},
	}
}

func (s *Server) operationRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: adminv1.Root + "/me", Name: "me", Summary: "Get the identity and the roles of the caller.",
			Role: adminv1.Reader, Response: adminv1.Identity{}, Status: http.StatusOK, handle: s.me,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/operations", Name: "operations.list", Summary: "List admin operations, newest first.",
			Role: adminv1.Reader, Response: adminv1.OperationList{}, Status: http.StatusOK, handle: s.listOperations,
			Query: append([]Parameter{
				{Name: "cluster", Type: "string", Description: "Only operations on this cluster; any identifier."},
				{Name: "state", Type: "string", Description: "Only operations in this state."},
			}, of("operations")...),
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/operations/{operation}", Name: "operations.get", Summary: "Get an admin operation.",
			Role: adminv1.Reader, Response: adminv1.Operation{}, Status: http.StatusOK, handle: s.getOperation,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/audit", Name: "audit.list",
			Summary: "List audit records, newest first: operations and elevations, kept for 400 days.",
			Role:    adminv1.Reader, Response: adminv1.AuditList{}, Status: http.StatusOK, handle: s.listAudit, Query: of("records"),
		},
	}
}
