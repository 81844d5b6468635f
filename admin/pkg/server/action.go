package server

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// longestPause is Cluster Service's.
const longestPause = 7 * 24 * time.Hour

// target finds the cluster in the path.
func (s *Server) target(ctx context.Context, rq *request) (database.AdminTarget, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return database.AdminTarget{}, err
	}
	return database.AdminTarget{Kind: "cluster", ID: cluster.UID, ResourceID: cluster.ResourceID, ClusterUID: cluster.UID}, nil
}

// onCluster is an action on a cluster that has no parameters.
func (s *Server) onCluster(ctx context.Context, rq *request) (any, error) {
	if err := rq.nobody(); err != nil {
		return nil, err
	}
	target, err := s.target(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, nil)
}

func (s *Server) pauseCluster(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.PauseRequest
	if err := rq.body(&asked); err != nil {
		return nil, err
	}
	duration, err := time.ParseDuration(asked.Duration)
	if err != nil || duration < time.Minute || duration > longestPause {
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "duration", Message: "Invalid value: must be 1m to 168h, as in 2h"}})
	}
	target, err := s.target(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, adminv1.PauseParameters{Until: time.Now().UTC().Add(duration).Truncate(time.Second)})
}

func (s *Server) resizeCluster(ctx context.Context, rq *request) (any, error) {
	var asked adminv1.ResizeRequest
	if err := rq.body(&asked); err != nil {
		return nil, err
	}
	target, err := s.target(ctx, rq)
	if err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, target, asked)
}

func (s *Server) listInterventions(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	response, err := s.Fleet.ListInterventions(ctx, &clusterservicev1.ListInterventionsRequest{ClusterUid: cluster.UID})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.InterventionList{Items: adminv1.Messages(response.GetInterventions())}, nil
}
