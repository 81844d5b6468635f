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
	return slices.Concat(s.clusterRoutes(), s.childRoutes(), s.deletionRoutes(), s.upgradeRoutes(), s.regionRoutes(), s.alertRoutes(), s.quotaRoutes(), s.egressLinkRoutes(), s.elevationRoutes(), s.accessSessionRoutes(), s.recordingRoutes(), s.operationRoutes(), s.actionRoutes())
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

// actionRoutes returns a route for each action, which stores it as an admin operation.
func (s *Server) actionRoutes() []Route {
	var list []Route
	handlers := s.actionHandlers()
	for _, a := range adminv1.Actions() {
		handle := handlers[a.Name]
		switch {
		case a.Path == "":
			continue
		case handle == nil:
			handle = s.forwarded(a.Name, nil)
		}
		list = append(list, Route{
			Method: a.Method, Path: adminv1.Root + a.Path, Name: a.Name, Summary: a.Summary, Role: a.Class.Role(), Mutates: true, Request: a.Body,
			Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: handle,
		})
	}
	return list
}

// actionHandlers returns the handlers of the actions whose requests need more than forwarded does.
func (s *Server) actionHandlers() map[string]handler {
	return map[string]handler{
		adminv1.ActionClusterPause:                 s.pauseCluster,
		adminv1.ActionClusterSetSize:               s.setClusterSize,
		adminv1.ActionDeletionRelease:              s.forwarded(adminv1.ActionDeletionRelease, stepCheck(releaseRefusal)),
		adminv1.ActionDeletionForce:                s.forwarded(adminv1.ActionDeletionForce, stepCheck(deletion.ForceRefusal)),
		adminv1.ActionUpgradeStart:                 s.forwarded(adminv1.ActionUpgradeStart, s.checkAcknowledge),
		adminv1.ActionNodePoolScale:                s.scaleNodePool,
		adminv1.ActionCredentialRequest:            s.requestCredential,
		adminv1.ActionCredentialRevoke:             s.revokeCredentials,
		adminv1.ActionCredentialRevokeOne:          s.revokeCredential,
		adminv1.ActionAccessSessionRequest:         s.requestAccessSession,
		adminv1.ActionShardSessionRequest:          s.requestShardSession,
		adminv1.ActionServiceClusterSessionRequest: s.requestServiceClusterSession,
		adminv1.ActionARMOperationRetry:            s.onARMOperation,
		adminv1.ActionARMOperationCancel:           s.onARMOperation,
		adminv1.ActionOrphanDelete:                 s.deleteOrphan,
		adminv1.ActionDriftReconcile:               s.reconcileDrift,
		adminv1.ActionDriftDelete:                  s.deleteDrift,
		adminv1.ActionQuotaSet:                     s.setQuota,
		adminv1.ActionEgressLinkSet:                s.setEgressLink,
		adminv1.ActionEgressLinkDelete:             s.deleteEgressLink,
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
	}
}

// childRoutes returns the routes of the children of clusters.
func (s *Server) childRoutes() []Route {
	return []Route{
		readRoute(clusterPath+"/node-pools", "nodePools.list", "List the node pools of a cluster, in ARM and in the fleet.", adminv1.NodePoolList{}, s.listNodePools),
		readRoute(clusterPath+"/node-pools/{pool}", "nodePools.get", "Get a node pool by name.", adminv1.NodePool{}, s.getNodePool),
		sensitive(readRoute(clusterPath+"/credentials", "credentials.list", "List the break-glass credentials of a cluster, without certificates, and the revocations.", adminv1.CredentialList{}, s.listCredentials)),
		sensitive(readRoute(adminv1.Root+"/credentials/{credential}", "credentials.get", "Get a credential. A credential of class sre includes its certificate, which is usable only with the private key.",
			adminv1.FleetCredential{}, s.getCredential)),
		sensitive(readRoute(clusterPath+"/works", "works.list", "List the Maestro bundles of a cluster with their status, without secrets.", adminv1.BundleList{}, s.listBundles)),
		readRoute(clusterPath+"/arm-operations", "armOperations.list", "List the ARM operations of a cluster and its children, newest first.", adminv1.ARMOperationList{}, s.listARMOperations),
		readRoute(adminv1.Root+"/arm-operations/{operation}", "armOperations.get", "Get an ARM operation of any subscription.", adminv1.ARMOperation{}, s.getARMOperation),
	}
}

func (s *Server) deletionRoutes() []Route {
	return []Route{
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
		readRoute(upgrade, "upgrades.get", "Get an upgrade.", adminv1.Message[*clusterservicev1.Upgrade]{}, s.getUpgrade),
		readRoute(adminv1.Root+"/upgrade-policies", "upgradePolicies.list", "List the upgrade policies.", adminv1.UpgradePolicyList{}, s.listUpgradePolicies),
		readRoute(policy, "upgradePolicies.get", "Get an upgrade policy with its progress.", adminv1.Message[*clusterservicev1.UpgradePolicy]{}, s.getUpgradePolicy),
	}
}

// regionRoutes returns the routes of objects that belong to no cluster.
func (s *Server) regionRoutes() []Route {
	const shard = adminv1.Root + "/shards/{shard}"
	return []Route{
		readRoute(adminv1.Root+"/explanation", "region.explanation", "Explain the region: which components are away since when, how many clusters are affected, and what waiting clusters have in common.",
			adminv1.RegionExplanation{}, s.explainRegion),
		readRoute(adminv1.Root+"/shards", "shards.list", "List the provision shards with their load.", adminv1.ShardList{}, s.listShards),
		readRoute(shard, "shards.get", "Get a provision shard with its load and history.", adminv1.Message[*clusterservicev1.ProvisionShardReport]{}, s.getShard),
		readRoute(shard+"/drain-plan", "shards.drainPlan", "Get where the clusters of a provision shard would go.", adminv1.Message[*clusterservicev1.DrainPlan]{}, s.planDrain),
		readRoute(clusterPath+"/placement", "placement.explain", "Explain the placement of a cluster.", adminv1.Message[*clusterservicev1.PlacementExplanation]{}, s.explainPlacement),
		readRoute(adminv1.Root+"/orphans", "orphans.list", "List Maestro bundles that belong to no ManifestWork.", adminv1.OrphanList{}, s.listOrphans),
		readRoute(adminv1.Root+"/azure-orphans", "azureOrphans.list", "List resources in Azure that claim to belong to a cluster which does not exist, with the proof of its deletion.", adminv1.AzureOrphanList{}, s.listAzureOrphans),
		readRoute(adminv1.Root+"/drift", "drift.list", "Compare ARM's documents with the fleet and list the differences without an operation in progress.", adminv1.DriftList{}, s.listDrift),
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
