package server

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// requestShardSession accepts the request for an access session for the management cluster of a provision shard. The session is stored before its
// operation, as for a cluster. The backend completes it with the signed intent, for which the agent on the management cluster issues a token.
func (s *Server) requestShardSession(ctx context.Context, rq *request) (any, error) {
	asked, err := s.decodeTokenSession(ctx, rq)
	if err != nil {
		return nil, err
	}
	target := database.AdminTarget{Kind: adminv1.TargetShard, ID: rq.http.PathValue("shard")}
	rq.audited.object = objectOf(target)
	if _, err := s.Fleet.GetProvisionShard(ctx, &clusterservicev1.GetProvisionShardRequest{Name: target.ID}); err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return s.acceptTokenSession(ctx, rq, target, asked)
}

// requestServiceClusterSession accepts the request for an access session for the service cluster, as requestShardSession does for a management cluster.
func (s *Server) requestServiceClusterSession(ctx context.Context, rq *request) (any, error) {
	target := database.AdminTarget{Kind: adminv1.TargetServiceCluster, ID: adminv1.ServiceCluster}
	rq.audited.object = objectOf(target)
	asked, err := s.decodeTokenSession(ctx, rq)
	if err != nil {
		return nil, err
	}
	if !s.Gateway.ServiceCluster {
		return nil, apierror.New(apierror.FailedPrecondition, "The region has no service cluster with access sessions.")
	}
	return s.acceptTokenSession(ctx, rq, target, asked)
}

// decodeTokenSession returns the request for a session for a management cluster or for the service cluster. These sessions have a token and no certificate. It
// returns an error if the elevation does not permit it.
func (s *Server) decodeTokenSession(ctx context.Context, rq *request) (asked adminv1.AccessSessionRequest, err error) {
	if asked, err = s.decodeSessionRequest(rq); err != nil {
		return asked, err
	}
	if err := s.requireLevel(ctx, rq, asked.Mode.Level()); err != nil {
		return asked, err
	}
	asked.Duration, err = validity(rq, asked.Duration)
	return asked, err
}

// acceptTokenSession stores the session for a management cluster or for the service cluster, and its operation.
func (s *Server) acceptTokenSession(ctx context.Context, rq *request, target database.AdminTarget, asked adminv1.AccessSessionRequest) (any, error) {
	operation, err := s.newOperation(rq, target, asked)
	if err != nil {
		return nil, err
	}
	session := newAccessSession(rq, operation, asked.Mode)
	session.Shard = target.ID
	return s.acceptAccessSession(ctx, rq, target, operation, session)
}
