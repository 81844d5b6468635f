package service

import (
	"context"
	"strings"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// ListClusterChanges returns the stored changes of a cluster and its children, newest first.
func (s *Service) ListClusterChanges(ctx context.Context, r *csv1.ListClusterChangesRequest) (*csv1.ListClusterChangesResponse, error) {
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, s.answer(ctx, err)
	}
	found, err := s.o.Store.ClusterChanges(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	return &csv1.ListClusterChangesResponse{Changes: found}, nil
}
