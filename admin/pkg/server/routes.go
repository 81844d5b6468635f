package server

import (
	"net/http"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Routes are all routes of the API, for the OpenAPI document.
func Routes() []Route { return (&Server{}).routes() }

func (s *Server) routes() []Route {
	return slices.Concat(s.clusterRoutes(), s.operationRoutes())
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
		{
			Method: http.MethodGet, Path: clusterPath + "/interventions", Name: "clusters.interventions",
			Summary: "What SREs had Cluster Service do to a cluster, newest first.",
			Role:    adminv1.Reader, Response: adminv1.InterventionList{}, Status: http.StatusOK, handle: s.listInterventions,
		},
		{
			Method: http.MethodPost, Path: clusterPath + "/pause", Name: adminv1.ActionClusterPause,
			Summary: "Has HyperShift leave the cluster's control plane and node pools alone for a while; what runs keeps running.",
			Role:    adminv1.Operator, Mutates: true, Request: adminv1.PauseRequest{}, Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: s.pauseCluster,
		},
		{
			Method: http.MethodPost, Path: clusterPath + "/resume", Name: adminv1.ActionClusterResume, Summary: "Ends a pause.",
			Role: adminv1.Operator, Mutates: true, Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: s.onCluster,
		},
		{
			Method: http.MethodPost, Path: clusterPath + "/resize", Name: adminv1.ActionClusterResize,
			Summary: "Overrides the size of the cluster's control plane, or takes that back.",
			Role:    adminv1.Operator, Mutates: true, Request: adminv1.ResizeRequest{}, Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: s.resizeCluster,
		},
		{
			Method: http.MethodPost, Path: clusterPath + "/retry", Name: adminv1.ActionClusterRetry,
			Summary: "Has everything begun anew at once that the cluster waits for: placement, and the publishing of its works.",
			Role:    adminv1.Operator, Mutates: true, Response: adminv1.Operation{}, Status: http.StatusAccepted, handle: s.onCluster,
		},
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
