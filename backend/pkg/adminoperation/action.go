package adminoperation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// action executes an operation, with its effect once per operation ID, and returns the result to store.
type action func(ctx context.Context, o *database.AdminOperationDocument) (result any, err error)

// table maps the names of actions to their implementations. An action of Cluster Service is forwarded, unless more is needed.
func (e *Executor) table() map[string]action {
	table := map[string]action{}
	for _, a := range adminv1.Actions() {
		if a.RPC != nil {
			table[a.Name] = e.forward
		}
	}
	maps.Copy(table, e.effects())
	return table
}

// effects maps the names of actions to implementations that are not a call of Cluster Service alone.
func (e *Executor) effects() map[string]action {
	return map[string]action{
		adminv1.ActionDeletionRetry:                e.retryDeletion,
		adminv1.ActionDriftReconcile:               e.reconcile,
		adminv1.ActionDriftDelete:                  e.deleteDrift,
		adminv1.ActionCredentialRequest:            e.requestCredential,
		adminv1.ActionCredentialRevoke:             e.revokeCredentials,
		adminv1.ActionCredentialRevokeOne:          e.revokeCredential,
		adminv1.ActionAccessSessionRequest:         e.requestCredential,
		adminv1.ActionShardSessionRequest:          e.completeTokenSession,
		adminv1.ActionServiceClusterSessionRequest: e.completeTokenSession,
		adminv1.ActionElevationEnd:                 e.endElevation,
		adminv1.ActionNodePoolScale:                decoded(e.scale),
		adminv1.ActionQuotaSet:                     decoded(e.setQuota),
		adminv1.ActionEgressLinkSet:                decoded(e.setEgressLink),
		adminv1.ActionEgressLinkDelete:             e.deleteEgressLink,
		adminv1.ActionARMOperationRetry:            e.retryARMOperation,
		adminv1.ActionARMOperationCancel:           e.cancelARMOperation,
	}
}

// forward sends the request of an operation to the method of its action, with the engineer's intent.
func (e *Executor) forward(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	response, err := send(ctx, o, func(ctx context.Context, request proto.Message, _ ...grpc.CallOption) (proto.Message, error) {
		return adminv1.FindAction(o.Action).RPC.Call(ctx, e.rpc, request)
	})
	switch {
	case err != nil && apierror.As(err).Reason == clusterservice.ReasonCallDone:
		return nil, nil // an earlier attempt has succeeded, and its response was lost
	case err != nil:
		return nil, err
	}
	return adminv1.Message[proto.Message]{Of: response}, nil
}

// send sends the request of an operation to Cluster Service.
func send[Q, A proto.Message](ctx context.Context, o *database.AdminOperationDocument, call func(ctx context.Context, request Q, options ...grpc.CallOption) (A, error)) (response A, err error) {
	request, err := adminaction.RequestOf(o)
	if err != nil {
		return response, err
	}
	message, ok := request.Message.(Q)
	if !ok {
		return response, fmt.Errorf("the request of action %s is a %T", o.Action, request.Message)
	}
	if !request.OwnUID {
		// Cluster Service recognizes a repetition by the call ID; otherwise it would reject or repeat it.
		ctx = metadata.AppendToOutgoingContext(ctx, clusterservice.CallIDKey, o.OperationID)
	}
	response, err = call(intent.AppendToOutgoingContext(ctx, o.Intent), message)
	return response, apierror.FromGRPC(err)
}

// decoded returns an action with decoded parameters.
func decoded[P any](do func(ctx context.Context, o *database.AdminOperationDocument, parameters P) (any, error)) action {
	return func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
		var parameters P
		if err := json.Unmarshal(o.Parameters, &parameters); err != nil {
			return nil, adminaction.InvalidParameters(err)
		}
		return do(ctx, o, parameters)
	}
}

func (e *Executor) requestCredential(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	c, err := send(ctx, o, e.rpc.ApplyBreakGlassCredential)
	if err != nil {
		return nil, err
	}
	// The certificate signing request is left out, because the parameters contain it.
	return adminv1.FleetCredential{Of: &clusterservicev1.BreakGlassCredential{Uid: c.GetUid(), ClusterUid: c.GetClusterUid(), CreateTime: c.GetCreateTime()}}, nil
}

func (e *Executor) revokeCredentials(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	v, err := send(ctx, o, e.rpc.RevokeBreakGlassCredentials)
	if err != nil {
		return nil, err
	}
	return adminv1.FleetRevocation{Of: &clusterservicev1.BreakGlassRevocation{Uid: v.GetUid(), ClusterUid: v.GetClusterUid(), Class: v.GetClass(), Elevation: v.GetElevation(), CreateTime: v.GetCreateTime()}}, nil
}

func (e *Executor) revokeCredential(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	c, err := send(ctx, o, e.rpc.RevokeBreakGlassCredential)
	if err != nil {
		return nil, err
	}
	// The result has no certificate. It has the time until which the API server accepts it.
	return adminv1.FleetCredential{Of: &clusterservicev1.BreakGlassCredential{Uid: c.GetUid(), ClusterUid: c.GetClusterUid(), CreateTime: c.GetCreateTime(),
		Status: &clusterservicev1.BreakGlassCredentialStatus{State: c.GetStatus().GetState(), ExpirationTime: c.GetStatus().GetExpirationTime(),
			Revocation: c.GetStatus().GetRevocation()}}}, nil
}
