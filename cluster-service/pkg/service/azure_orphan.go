package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
)

// ListAzureOrphans returns a page of the resources in Azure that belong to no cluster.
func (s *Service) ListAzureOrphans(ctx context.Context, r *csv1.ListAzureOrphansRequest) (*csv1.ListAzureOrphansResponse, error) {
	f, err := page(r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	orphans, err := s.o.Store.ListAzureOrphans(ctx, f.After, azure.OrphanGrace, f.Limit)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListAzureOrphansResponse{}
	for _, o := range orphans {
		response.Orphans = append(response.Orphans, &csv1.AzureOrphan{Uid: o.UID, Kind: o.Kind, AzureId: o.AzureID, ClusterUid: o.ClusterUID,
			ClusterResourceId: o.ClusterResourceID, Evidence: o.Evidence, Proof: o.Proof,
			FirstTime: timestamppb.New(o.FirstTime), LastTime: timestamppb.New(o.LastTime)})
	}
	if len(orphans) > 0 {
		response.NextPageToken = nextToken(len(orphans) == f.Limit, orphans[len(orphans)-1].UID)
	}
	return response, nil
}
