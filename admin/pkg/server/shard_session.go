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
	asked, err := s.decodeSessionRequest(rq)
	if err != nil {
		return nil, err
	}
	if err := s.requireLevel(ctx, rq, asked.Mode.Level()); err != nil {
		return nil, err
	}
	if asked.Duration, err = validity(rq, asked.Duration); err != nil {
		return nil, err
	}
	target := database.AdminTarget{Kind: adminv1.TargetShard, ID: rq.http.PathValue("shard")}
	rq.audited.object = objectOf(target)
	if _, err := s.Fleet.GetProvisionShard(ctx, &clusterservicev1.GetProvisionShardRequest{Name: target.ID}); err != nil {
		return nil, apierror.FromGRPC(err)
	}
	operation, err := s.newOperation(rq, target, asked)
	if err != nil {
		return nil, err
	}
	session := newAccessSession(rq, operation, asked.Mode)
	session.Shard = target.ID
	return s.acceptAccessSession(ctx, rq, target, operation, session)
}
