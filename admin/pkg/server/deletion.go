package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// stepCheck rejects steps for which refusal returns a reason: those in ARM.
func stepCheck(refusal func(kind string) string) requestCheck {
	return func(_ context.Context, _ *request, r proto.Message) error {
		step := r.(interface{ GetStep() string }).GetStep()
		if reason := refusal(deletion.ARMStepKind(step)); reason != "" {
			return apierror.New(apierror.Conflict, "Step %s: %s", step, reason).WithTarget("step")
		}
		return nil
	}
}

// releaseRefusal returns why the finalizers of a step cannot be released; empty for a step of Cluster Service.
func releaseRefusal(kind string) string {
	if kind == "" {
		return ""
	}
	return "It waits for no object on a management cluster, so there is no finalizer to release. Retry the deletion instead."
}

// getDeletion returns the deletion of a cluster with the steps in ARM and in Cluster Service. If the cluster is not being
// deleted, it returns the deletions of its children.
func (s *Server) getDeletion(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	taken := s.collector.CollectWithoutBundles(ctx, cluster)
	if taken.ARM == nil && taken.ClusterService == nil {
		return nil, apierror.New(apierror.Unavailable, "Neither ARM's documents nor Cluster Service could be read.")
	}
	shown := adminv1.ClusterDeletion{Cluster: cluster, Items: []adminv1.Deletion{}, Unavailable: taken.Unavailable}
	for _, g := range deletion.Graphs(taken) {
		shown.Items = append(shown.Items, deletionResponse(g))
	}
	return shown, nil
}

func deletionResponse(g deletion.Graph) adminv1.Deletion {
	return adminv1.Deletion{Kind: g.Kind, ResourceID: g.ResourceID, UID: g.UID, ClusterUID: g.ClusterUID, DeleteTime: g.StartTime, OperationID: g.OperationID,
		Over: g.Done, Deletion: adminv1.Message[*clusterservicev1.Deletion]{Of: &clusterservicev1.Deletion{Steps: g.Steps}}}
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
	err = clusterservice.EachPage(func(token string) (*clusterservicev1.ListDeletionLeftoversResponse, error) {
		return s.Fleet.ListDeletionLeftovers(ctx, &clusterservicev1.ListDeletionLeftoversRequest{ClusterUid: clusterUID, Gone: gone, PageSize: listPage, PageToken: token})
	}, func(page *clusterservicev1.ListDeletionLeftoversResponse) error {
		list.Items = append(list.Items, adminv1.Messages(page.GetLeftovers())...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
