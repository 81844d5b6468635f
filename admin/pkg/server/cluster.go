package server

import (
	"context"

	"github.com/hcpmesh/hcpmesh/admin/pkg/explanation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

func (s *Server) me(_ context.Context, rq *request) (any, error) {
	return adminv1.Identity{Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Roles: rq.roles}, nil
}

func (s *Server) listClusters(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	query := rq.http.URL.Query()
	if q := query.Get("q"); q != "" {
		found, err := s.finder.Find(ctx, q)
		return adminv1.ClusterList{Items: found}, err
	}
	return s.finder.List(ctx, query.Get("subscription"), token, size)
}

func (s *Server) getCluster(ctx context.Context, rq *request) (any, error) {
	return s.finder.One(ctx, rq.http.PathValue("cluster"))
}

func (s *Server) dumpCluster(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	return s.collector.Collect(ctx, cluster), nil
}

// explainCluster explains a cluster from what ARM and Cluster Service report. A layer that cannot be read makes the
// explanation partial.
func (s *Server) explainCluster(ctx context.Context, rq *request) (any, error) {
	name := rq.http.PathValue("cluster")
	cluster, err := s.finder.One(ctx, name)
	if err != nil {
		return nil, err
	}
	return explanation.Explain(name, s.collector.CollectWithoutBundles(ctx, cluster)), nil
}
