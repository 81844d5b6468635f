package server

import (
	"net/http"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Routes are all routes of the API, for the OpenAPI document.
func Routes() []Route { return (&Server{}).routes() }

func (s *Server) routes() []Route {
	return slices.Concat(s.clusterRoutes(), s.childRoutes(), s.deletionRoutes(), s.upgradeRoutes(), s.regionRoutes(), s.operationRoutes())
}

// readRoute is a route that shows something.
func readRoute(path, name, summary string, response any, handle handler, query ...Parameter) Route {
	return Route{
		Method: http.MethodGet, Path: path, Name: name, Summary: summary, Role: adminv1.Reader, Response: response, Status: http.StatusOK,
		handle: handle, Query: query,
	}
}

// changeRoute is a route by which something is changed: what is asked for is written down as an operation.
func changeRoute(method, path, name, summary string, role adminv1.Role, asked any, handle handler) Route {
	return Route{
		Method: method, Path: path, Name: name, Summary: summary, Role: role, Mutates: true, Request: asked, Response: adminv1.Operation{},
		Status: http.StatusAccepted, handle: handle,
	}
}

const clusterPath = adminv1.Root + "/clusters/{cluster}"

func (s *Server) clusterRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: adminv1.Root + "/clusters", Name: "clusters.list",
			Summary: "The clusters that `q` means: a resource id, name, uid, cluster id, namespace, API host or subscription; without it a page of the fleet.",
			Role:    adminv1.Reader, Response: adminv1.ClusterList{}, Status: http.StatusOK, handle: s.listClusters,
			Query: append([]Parameter{
				{Name: "q", Type: "string", Description: "What the clusters are found by; at most 200 are."},
				{Name: "subscription", Type: "string", Description: "Only clusters of this subscription, as ARM knows them."},
			}, paging...),
		},
		{
			Method: http.MethodGet, Path: clusterPath, Name: "clusters.get",
			Summary: "One cluster. In the path, here and below, it is named by anything that `q` takes, as long as that means one cluster.",
			Role:    adminv1.Reader, Response: adminv1.Cluster{}, Status: http.StatusOK, handle: s.getCluster,
		},
		{
			Method: http.MethodGet, Path: clusterPath + "/dump", Name: "clusters.dump",
			Summary: "What every layer knows of a cluster, with secrets removed.",
			Role:    adminv1.Reader, Response: adminv1.Dump{}, Status: http.StatusOK, handle: s.dumpCluster,
		},
		readRoute(clusterPath+"/explanation", "clusters.explanation", "What a cluster and its children wait for, since when, who must act, and which command helps.", adminv1.Explanation{}, s.explainCluster),
		readRoute(clusterPath+"/actions", "clusters.actions", "List the actions that Cluster Service executed on a cluster, newest first.", adminv1.ClusterActionList{}, s.listClusterActions),
		changeRoute(http.MethodPost, clusterPath+"/pause", adminv1.ActionClusterPause,
			"Has HyperShift leave the cluster's control plane and node pools alone for a while; what runs keeps running.", adminv1.Operator, adminv1.PauseRequest{}, s.pauseCluster),
		changeRoute(http.MethodPost, clusterPath+"/resume", adminv1.ActionClusterResume, "Ends a pause.", adminv1.Operator, nil,
			forwarded(s, clusterTarget[*clusterservicev1.ResumeClusterRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/set-size", adminv1.ActionClusterSetSize,
			"Overrides the size of the cluster's control plane, or takes that back.", adminv1.Operator, adminv1.SetSizeRequest{}, s.setClusterSize),
		changeRoute(http.MethodPost, clusterPath+"/retry", adminv1.ActionClusterRetry,
			"Has everything begun anew at once that the cluster waits for: placement, the publishing of its works, and what is tried in Azure.", adminv1.Operator, nil,
			forwarded(s, clusterTarget[*clusterservicev1.RetryClusterRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/force", adminv1.ActionClusterForce,
			"Ends the wait of a cluster that is being created for a step in Azure that is stuck; the step goes on to be tried.", adminv1.BreakGlass,
			adminv1.Message[*clusterservicev1.ForceClusterStepRequest]{}, forwarded(s, clusterTarget[*clusterservicev1.ForceClusterStepRequest](s))),
	}
}

// childRoutes are about what belongs to a cluster.
func (s *Server) childRoutes() []Route {
	return []Route{
		readRoute(clusterPath+"/node-pools", "nodePools.list", "The node pools of a cluster, in ARM and in the fleet.", adminv1.NodePoolList{}, s.listNodePools),
		readRoute(clusterPath+"/node-pools/{pool}", "nodePools.get", "One node pool, by its name.", adminv1.NodePool{}, s.getNodePool),
		changeRoute(http.MethodPost, clusterPath+"/node-pools/{pool}/scale", adminv1.ActionNodePoolScale,
			"Sets the size of a node pool in the customer's place: ARM shows it as an update.", adminv1.Operator, adminv1.ScaleRequest{}, s.scaleNodePool),
		readRoute(clusterPath+"/credentials", "credentials.list", "The break-glass credentials of a cluster, without certificates, and the revocations.", adminv1.CredentialList{}, s.listCredentials),
		readRoute(adminv1.Root+"/credentials/{credential}", "credentials.get", "One credential; an SRE's with its certificate, which is of use to whoever has the key.",
			adminv1.FleetCredential{}, s.getCredential),
		changeRoute(http.MethodPost, clusterPath+"/credentials", adminv1.ActionCredentialRequest,
			"Asks for a credential of the SREs' class, whose uid is the operation's id.", adminv1.BreakGlass, adminv1.CredentialRequest{}, s.requestCredential),
		changeRoute(http.MethodPost, clusterPath+"/credentials/revoke", adminv1.ActionCredentialRevoke,
			"Revokes all credentials of a class, by replacing its signer.", adminv1.Operator, adminv1.RevokeRequest{}, s.revokeCredentials),
		readRoute(clusterPath+"/works", "works.list", "The bundles of a cluster at Maestro, with what the management cluster says of them; without secrets.", adminv1.BundleList{}, s.listBundles),
		readRoute(clusterPath+"/arm-operations", "armOperations.list", "The operations of ARM's of a cluster and of what is below it, newest first.", adminv1.ARMOperationList{}, s.listARMOperations),
		readRoute(adminv1.Root+"/arm-operations/{operation}", "armOperations.get", "One operation of ARM's, of any subscription.", adminv1.ARMOperation{}, s.getARMOperation),
		changeRoute(http.MethodPost, adminv1.Root+"/arm-operations/{operation}/retry", adminv1.ActionARMOperationRetry,
			"Has the backend take an operation of ARM's up again at once.", adminv1.Operator, nil, s.onARMOperation),
		changeRoute(http.MethodPost, adminv1.Root+"/arm-operations/{operation}/cancel", adminv1.ActionARMOperationCancel,
			"Ends a create or an update of ARM's as Canceled; what Cluster Service has taken of it stays.", adminv1.BreakGlass, nil, s.onARMOperation),
	}
}

func (s *Server) deletionRoutes() []Route {
	return []Route{
		changeRoute(http.MethodPost, clusterPath+"/deletion/retry", adminv1.ActionDeletionRetry, "Has every step of a deletion that runs tried again at once: those of Cluster Service, and those of the ARM side.",
			adminv1.Operator, nil, forwarded(s, clusterTarget[*clusterservicev1.RetryDeletionRequest](s))),
		changeRoute(http.MethodPost, clusterPath+"/deletion/release", adminv1.ActionDeletionRelease, "Has finalizers taken off what a step of a deletion waits for.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.ReleaseDeletionFinalizersRequest]{}, forwarded(s, stepTarget[*clusterservicev1.ReleaseDeletionFinalizersRequest](s, releaseRefusal))),
		changeRoute(http.MethodPost, clusterPath+"/deletion/force", adminv1.ActionDeletionForce, "Ends the wait for a step of Cluster Service's of a deletion; what is left behind is listed. A step of the ARM side is refused.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.ForceDeletionStepRequest]{}, forwarded(s, stepTarget[*clusterservicev1.ForceDeletionStepRequest](s, deletion.ForceRefusal))),
		readRoute(adminv1.Root+"/deletions", "deletions.list", "What is being deleted in the region, with the steps of each; what goes with its cluster is not named apart.", adminv1.DeletionList{},
			s.listDeletions, Parameter{Name: "stuck", Type: "boolean", Description: "Only what has a step that is stuck."}),
		readRoute(clusterPath+"/deletion", "deletions.get", "The deletion of a cluster; while the cluster stays, those in it.", adminv1.ClusterDeletion{}, s.getDeletion),
		readRoute(adminv1.Root+"/deletion-leftovers", "deletions.leftovers", "What forced deletions left behind and is not gone yet.", adminv1.LeftoverList{}, s.listLeftovers,
			Parameter{Name: "cluster", Type: "string", Description: "Only what is left of this cluster."},
			Parameter{Name: "gone", Type: "boolean", Description: "What has gone, too."}),
	}
}

func (s *Server) upgradeRoutes() []Route {
	const upgrade, policy = adminv1.Root + "/upgrades/{upgrade}", adminv1.Root + "/upgrade-policies/{policy}"
	return []Route{
		readRoute(adminv1.Root+"/upgrades", "upgrades.region", "The upgrades of the region; those that have ended are kept for a week.", adminv1.UpgradeList{}, s.listRegionUpgrades,
			append([]Parameter{{Name: "active", Type: "boolean", Description: "Only those that are under way."}}, paging...)...),
		readRoute(clusterPath+"/upgrades", "upgrades.list", "The upgrades of a cluster.", adminv1.UpgradeList{}, s.listUpgrades),
		readRoute(clusterPath+"/upgrade-plan", "upgrades.plan", "What an upgrade would do, why it would be refused, and what would be allowed.",
			adminv1.Message[*clusterservicev1.UpgradePlan]{}, s.planUpgrade,
			Parameter{Name: "version", Type: "string", Description: "MAJOR.MINOR.PATCH; by default the newest of the cluster's minor version."},
			Parameter{Name: "nodePools", Type: "string", Description: "The node pools that follow: none (the default), unpinned or all."}),
		changeRoute(http.MethodPost, clusterPath+"/upgrades", adminv1.ActionUpgradeStart, "Starts an upgrade of a cluster; its uid is the operation's id. One that acknowledges gates needs the role break-glass.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.StartUpgradeRequest]{}, forwarded(s, s.upgradeTarget)),
		readRoute(upgrade, "upgrades.get", "One upgrade.", adminv1.Message[*clusterservicev1.Upgrade]{}, s.getUpgrade),
		changeRoute(http.MethodPost, upgrade+"/pause", adminv1.ActionUpgradePause, "Holds an upgrade: what has begun goes on, nothing new begins.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.PauseUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/resume", adminv1.ActionUpgradeResume, "Lets a held upgrade go on.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.ResumeUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/abort", adminv1.ActionUpgradeAbort, "Gives an upgrade up, as far as it has not begun.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.AbortUpgradeRequest]("upgrade", "upgrade", "uid"))),
		changeRoute(http.MethodPost, upgrade+"/acknowledge", adminv1.ActionUpgradeAcknowledge, "Passes a gate of an upgrade by taking responsibility.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.AcknowledgeUpgradeGateRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.AcknowledgeUpgradeGateRequest]("upgrade", "upgrade", "uid"))),
		readRoute(adminv1.Root+"/upgrade-policies", "upgradePolicies.list", "The upgrade policies of the region.", adminv1.UpgradePolicyList{}, s.listUpgradePolicies),
		readRoute(policy, "upgradePolicies.get", "One upgrade policy, with how it stands.", adminv1.Message[*clusterservicev1.UpgradePolicy]{}, s.getUpgradePolicy),
		changeRoute(http.MethodPut, policy, adminv1.ActionUpgradePolicyApply, "Stores an upgrade policy under its name.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.ApplyUpgradePolicyRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.ApplyUpgradePolicyRequest]("upgradePolicy", "policy", "name"))),
		changeRoute(http.MethodDelete, policy, adminv1.ActionUpgradePolicyDelete, "Ends an upgrade policy; its upgrades that are under way go on.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.DeleteUpgradePolicyRequest]("upgradePolicy", "policy", "name"))),
	}
}

// regionRoutes are about what belongs to no cluster.
func (s *Server) regionRoutes() []Route {
	const shard = adminv1.Root + "/shards/{shard}"
	return []Route{
		readRoute(adminv1.Root+"/shards", "shards.list", "The provision shards, with what they hold.", adminv1.ShardList{}, s.listShards),
		changeRoute(http.MethodPatch, shard, adminv1.ActionShardUpdate, "Sets what an operator decides of a provision shard: whether new clusters are kept away, and its capacity.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.UpdateProvisionShardRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.UpdateProvisionShardRequest]("provisionShard", "shard", "name"))),
		readRoute(shard, "shards.get", "One provision shard, with what it carries.", adminv1.Message[*clusterservicev1.ProvisionShardReport]{}, s.getShard),
		changeRoute(http.MethodPut, shard, adminv1.ActionShardRegister, "Registers a provision shard, whose Maestro consumer has the same name.",
			adminv1.BreakGlass, adminv1.Message[*clusterservicev1.RegisterProvisionShardRequest]{},
			forwarded(s, pathTarget[*clusterservicev1.RegisterProvisionShardRequest]("provisionShard", "shard", "name"))),
		changeRoute(http.MethodDelete, shard, adminv1.ActionShardDeregister, "Forgets a provision shard that holds no cluster.",
			adminv1.BreakGlass, nil, forwarded(s, pathTarget[*clusterservicev1.DeregisterProvisionShardRequest]("provisionShard", "shard", "name"))),
		readRoute(shard+"/drain-plan", "shards.drainPlan", "Where the clusters of a provision shard would go.", adminv1.Message[*clusterservicev1.DrainPlan]{}, s.planDrain),
		changeRoute(http.MethodPost, shard+"/drain", adminv1.ActionShardDrain, "Keeps new clusters away from a provision shard for good; it moves none away.",
			adminv1.Operator, nil, forwarded(s, pathTarget[*clusterservicev1.DrainProvisionShardRequest]("provisionShard", "shard", "name"))),
		readRoute(clusterPath+"/placement", "placement.explain", "Why a cluster is where it is, or why it waits.", adminv1.Message[*clusterservicev1.PlacementExplanation]{}, s.explainPlacement),
		changeRoute(http.MethodPut, clusterPath+"/placement", adminv1.ActionPlacementSet, "Sets the rules by which a cluster is placed, over the region's.",
			adminv1.Operator, adminv1.Message[*clusterservicev1.SetPlacementPolicyRequest]{}, forwarded(s, s.placementTarget)),
		readRoute(adminv1.Root+"/orphans", "orphans.list", "Bundles at Maestro that no work of Cluster Service's is for.", adminv1.OrphanList{}, s.listOrphans),
		changeRoute(http.MethodDelete, adminv1.Root+"/orphans/{bundle}", adminv1.ActionOrphanDelete, "Has an orphan removed, with what it carries on the management cluster.",
			adminv1.BreakGlass, nil, s.deleteOrphan),
		readRoute(adminv1.Root+"/drift", "drift.list", "Where ARM's documents and the fleet disagree and no operation is under way, compared now.", adminv1.DriftList{}, s.listDrift),
		changeRoute(http.MethodPost, adminv1.Root+"/drift/reconcile", adminv1.ActionDriftReconcile, "Has the backend compare the whole region, and send to the fleet again what it lost.",
			adminv1.Operator, nil, s.reconcileDrift),
		changeRoute(http.MethodDelete, adminv1.Root+"/drift/{uid}", adminv1.ActionDriftDelete, "Has the fleet delete what ARM's documents do not have.",
			adminv1.BreakGlass, nil, s.deleteDrift),
	}
}

func (s *Server) operationRoutes() []Route {
	of := func(noun string) []Parameter {
		return append([]Parameter{{Name: "actor", Type: "string", Description: "Only " + noun + " of the caller with this object id."}}, paging...)
	}
	return []Route{
		{
			Method: http.MethodGet, Path: adminv1.Root + "/me", Name: "me", Summary: "Who the caller is, and which roles the caller's groups give.",
			Role: adminv1.Reader, Response: adminv1.Identity{}, Status: http.StatusOK, handle: s.me,
		},
		{
			Method: http.MethodPost, Path: adminv1.Root + "/elevations", Name: "elevations.create",
			Summary: "Gives the caller a role that the caller's groups give, for a while. What changes something needs one; its reason and ticket are written down with all that is done under it.",
			Role:    adminv1.Operator, Request: adminv1.ElevationRequest{}, Response: adminv1.Elevation{}, Status: http.StatusCreated, handle: s.createElevation,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/elevations", Name: "elevations.list", Summary: "Elevations, newest first.",
			Role: adminv1.Reader, Response: adminv1.ElevationList{}, Status: http.StatusOK, handle: s.listElevations,
			Query: append([]Parameter{{Name: "active", Type: "boolean", Description: "Only those that give their role now."}}, of("elevations")...),
		},
		{
			Method: http.MethodDelete, Path: adminv1.Root + "/elevations/{elevation}", Name: "elevations.end",
			Summary: "Ends an elevation: the caller's own, or anybody's with the role break-glass.",
			Role:    adminv1.Operator, Response: adminv1.Elevation{}, Status: http.StatusOK, handle: s.endElevation,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/operations", Name: "operations.list", Summary: "What SREs asked for, newest first.",
			Role: adminv1.Reader, Response: adminv1.OperationList{}, Status: http.StatusOK, handle: s.listOperations,
			Query: append([]Parameter{
				{Name: "cluster", Type: "string", Description: "Only those of this cluster, named by anything that finds it."},
				{Name: "state", Type: "string", Description: "Only those in this state."},
			}, of("operations")...),
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/operations/{operation}", Name: "operations.get", Summary: "One operation.",
			Role: adminv1.Reader, Response: adminv1.Operation{}, Status: http.StatusOK, handle: s.getOperation,
		},
		{
			Method: http.MethodGet, Path: adminv1.Root + "/audit", Name: "audit.list",
			Summary: "What SREs did, newest first: operations and elevations, kept for 400 days.",
			Role:    adminv1.Reader, Response: adminv1.AuditList{}, Status: http.StatusOK, handle: s.listAudit, Query: of("what was done"),
		},
	}
}
