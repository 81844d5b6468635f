package intervention

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// action does what an operation asks for, once for the operation's id, and returns what it did.
type action func(ctx context.Context, o *database.AdminOperationDocument) (result any, err error)

// table is every action by the name of its route.
func (e *Executor) table() map[string]action {
	return map[string]action{
		adminv1.ActionClusterPause: with(func(ctx context.Context, o *database.AdminOperationDocument, p adminv1.PauseParameters) (any, error) {
			return effect(e.rpc.PauseCluster(ctx, &clusterservicev1.PauseClusterRequest{
				Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Until: timestamppb.New(p.Until), Actor: actorOf(o),
			}))
		}),
		adminv1.ActionClusterResume: func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
			return effect(e.rpc.ResumeCluster(ctx, &clusterservicev1.ResumeClusterRequest{Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Actor: actorOf(o)}))
		},
		adminv1.ActionClusterResize: with(func(ctx context.Context, o *database.AdminOperationDocument, p adminv1.ResizeRequest) (any, error) {
			return effect(e.rpc.ResizeCluster(ctx, &clusterservicev1.ResizeClusterRequest{
				Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Size: p.Size, Actor: actorOf(o),
			}))
		}),
		adminv1.ActionClusterRetry: func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
			return effect(e.rpc.RetryCluster(ctx, &clusterservicev1.RetryClusterRequest{Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Actor: actorOf(o)}))
		},
	}
}

// with decodes an action's parameters, which admin wrote.
func with[P any](do func(ctx context.Context, o *database.AdminOperationDocument, parameters P) (any, error)) action {
	return func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
		var parameters P
		if err := json.Unmarshal(o.Parameters, &parameters); err != nil {
			return nil, apierror.New(apierror.Invalid, "The parameters of the operation cannot be read.").WithCause(fmt.Errorf("decoding: %w", err))
		}
		return do(ctx, o, parameters)
	}
}

// effect is the result of an intervention at Cluster Service.
func effect(done *clusterservicev1.Intervention, err error) (any, error) {
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.Effect{Effect: done.GetEffect()}, nil
}

// actorOf is who asked, as Cluster Service keeps it.
func actorOf(o *database.AdminOperationDocument) *clusterservicev1.Actor {
	name := o.Actor.Name
	if name == "" {
		name = o.Actor.ObjectID
	}
	return &clusterservicev1.Actor{Name: name, Reason: o.Actor.Reason, Ticket: o.Actor.Ticket}
}
