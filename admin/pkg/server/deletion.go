package server

import (
	"context"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// getDeletion shows the deletion of a cluster. While the cluster stays, it is those of what is in it.
func (s *Server) getDeletion(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	shown := adminv1.ClusterDeletion{Cluster: cluster, Items: []adminv1.Deletion{}}
	known, err := s.Fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: cluster.UID})
	switch failure := apierror.FromGRPC(err); {
	case err != nil && apierror.KindOf(failure) == apierror.NotFound: // it has not reached Cluster Service
	case err != nil:
		return nil, failure
	case known.GetDeleteTime() != nil:
		shown.Items = append(shown.Items, deletionOfCluster(known))
	default:
		shown.Items, err = s.deletionsIn(ctx, cluster.UID)
	}
	return shown, err
}

func (s *Server) listDeletions(ctx context.Context, rq *request) (any, error) {
	stuck, err := rq.flag("stuck")
	if err != nil {
		return nil, err
	}
	list := adminv1.DeletionList{Items: []adminv1.Deletion{}}
	going := map[string]bool{}
	for token, first := "", true; first || token != ""; first = false {
		response, err := s.Fleet.ListClusters(ctx, &clusterservicev1.ListClustersRequest{
			Phases: []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING}, PageSize: 500, PageToken: token,
		})
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		for _, c := range response.GetClusters() {
			list.Items = append(list.Items, deletionOfCluster(c))
			going[c.GetUid()] = true
		}
		token = response.GetNextPageToken()
	}
	parts, err := s.deletionsIn(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if !going[part.ClusterUID] {
			list.Items = append(list.Items, part)
		}
	}
	if stuck {
		list.Items = slices.DeleteFunc(list.Items, func(d adminv1.Deletion) bool {
			return !slices.ContainsFunc(d.Deletion.Of.GetSteps(), (*clusterservicev1.DeletionStep).GetStuck)
		})
	}
	return list, nil
}

// deletionsIn lists the node pools and external authentications that are being deleted: of one cluster, or of all.
func (s *Server) deletionsIn(ctx context.Context, clusterUID string) ([]adminv1.Deletion, error) {
	list := []adminv1.Deletion{}
	for token, first := "", true; first || token != ""; first = false {
		response, err := s.Fleet.ListNodePools(ctx, &clusterservicev1.ListNodePoolsRequest{
			Phases: []clusterservicev1.NodePoolPhase{clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETING}, ClusterUid: clusterUID, PageSize: 500, PageToken: token,
		})
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		for _, p := range response.GetNodePools() {
			list = append(list, adminv1.Deletion{Kind: "nodePool", ResourceID: p.GetResourceId(), UID: p.GetUid(), ClusterUID: p.GetClusterUid(),
				DeleteTime: p.GetDeleteTime().AsTime(), Deletion: adminv1.Message[*clusterservicev1.Deletion]{Of: p.GetStatus().GetDeletion()}})
		}
		token = response.GetNextPageToken()
	}
	for token, first := "", true; first || token != ""; first = false {
		response, err := s.Fleet.ListExternalAuths(ctx, &clusterservicev1.ListExternalAuthsRequest{
			Phases: []clusterservicev1.ExternalAuthPhase{clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING}, ClusterUid: clusterUID, PageSize: 500, PageToken: token,
		})
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		for _, a := range response.GetExternalAuths() {
			list = append(list, adminv1.Deletion{Kind: "externalAuth", ResourceID: a.GetResourceId(), UID: a.GetUid(), ClusterUID: a.GetClusterUid(),
				DeleteTime: a.GetDeleteTime().AsTime(), Deletion: adminv1.Message[*clusterservicev1.Deletion]{Of: a.GetStatus().GetDeletion()}})
		}
		token = response.GetNextPageToken()
	}
	return list, nil
}

func deletionOfCluster(c *clusterservicev1.Cluster) adminv1.Deletion {
	return adminv1.Deletion{Kind: "cluster", ResourceID: c.GetResourceId(), UID: c.GetUid(), ClusterUID: c.GetUid(), DeleteTime: c.GetDeleteTime().AsTime(),
		Deletion: adminv1.Message[*clusterservicev1.Deletion]{Of: c.GetStatus().GetDeletion()}}
}

func (s *Server) listLeftovers(ctx context.Context, rq *request) (any, error) {
	clusterUID := ""
	if text := rq.http.URL.Query().Get("cluster"); text != "" {
		cluster, err := s.finder.One(ctx, text)
		if err != nil {
			return nil, err
		}
		clusterUID = cluster.UID
	}
	gone, err := rq.flag("gone")
	if err != nil {
		return nil, err
	}
	list := adminv1.LeftoverList{Items: adminv1.Messages[*clusterservicev1.DeletionLeftover](nil)}
	for token, first := "", true; first || token != ""; first = false {
		response, err := s.Fleet.ListDeletionLeftovers(ctx, &clusterservicev1.ListDeletionLeftoversRequest{ClusterUid: clusterUID, Gone: gone, PageSize: 500, PageToken: token})
		if err != nil {
			return nil, apierror.FromGRPC(err)
		}
		list.Items = append(list.Items, adminv1.Messages(response.GetLeftovers())...)
		token = response.GetNextPageToken()
	}
	return list, nil
}
