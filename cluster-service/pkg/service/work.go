package service

import (
	"context"
	"strings"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// ListWorks lists the works of a cluster as they stand.
func (s *Service) ListWorks(ctx context.Context, r *csv1.ListWorksRequest) (*csv1.ListWorksResponse, error) {
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, answer(ctx, err)
	}
	tenancy, err := s.o.Store.Read(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, answer(ctx, err)
	}
	response := &csv1.ListWorksResponse{}
	for _, w := range tenancy.Works {
		response.Works = append(response.Works, w.Proto())
	}
	return response, nil
}
