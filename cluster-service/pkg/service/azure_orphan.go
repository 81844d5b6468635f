package service

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ReasonAzureOrphanUnknown is the reason of the error for a UID that is not in the list of orphans in Azure.
const ReasonAzureOrphanUnknown = "AZURE_ORPHAN_UNKNOWN"

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

// DeleteAzureOrphan deletes a resource in Azure whose cluster is proved to be deleted. After a crash between Azure's response and the record of the call, a repetition
// checks the proof again.
func (s *Service) DeleteAzureOrphan(ctx context.Context, r *csv1.DeleteAzureOrphanRequest) (*csv1.DeleteAzureOrphanResponse, error) {
	var c check
	c.uuid("uid", r.GetUid())
	c.actor("actor", r.GetActor())
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	orphan, err := s.o.Store.FindAzureOrphan(ctx, strings.ToLower(r.GetUid()), azure.OrphanGrace)
	if errors.Is(err, store.ErrUnknown) || err == nil && s.o.DeleteAzureOrphan == nil {
		err = unknown(ReasonAzureOrphanUnknown, "Azure orphan", r.GetUid())
	}
	if err == nil {
		err = audit.BeforeEffect(ctx)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	effect, pending, err := s.o.DeleteAzureOrphan(ctx, *orphan)
	if err == nil {
		err = s.o.Store.EndAzureOrphanDeletion(ctx, orphan.UID, !pending)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "DeleteAzureOrphan", orphan.ClusterUID, r.GetActor(), logkey.Kind, orphan.Kind, logkey.Key, orphan.AzureID, logkey.Effect, effect)
	return &csv1.DeleteAzureOrphanResponse{Effect: effect}, nil
}
