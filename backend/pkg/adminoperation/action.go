package adminoperation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// action executes an operation, with its effect once per operation ID, and returns the result to store.
type action func(ctx context.Context, o *database.AdminOperationDocument) (result any, err error)

// table maps the names of actions to their implementations.
func (e *Executor) table() map[string]action {
	return map[string]action{
		adminv1.ActionClusterPause:   forward(e.rpc.PauseCluster),
		adminv1.ActionClusterResume:  forward(e.rpc.ResumeCluster),
		adminv1.ActionClusterSetSize: forward(e.rpc.SetClusterSize),
		adminv1.ActionClusterRetry:   forward(e.rpc.RetryCluster),
		adminv1.ActionClusterForce:   forward(e.rpc.ForceClusterStep),
		adminv1.ActionClusterAccept:  forward(e.rpc.AcceptControlPlane),

		adminv1.ActionDeletionRetry:   e.retryDeletion,
		adminv1.ActionDeletionRelease: forward(e.rpc.ReleaseDeletionFinalizers),
		adminv1.ActionDeletionForce:   forward(e.rpc.ForceDeletionStep),

		adminv1.ActionUpgradeStart:        forward(e.rpc.StartUpgrade),
		adminv1.ActionUpgradePause:        forward(e.rpc.PauseUpgrade),
		adminv1.ActionUpgradeResume:       forward(e.rpc.ResumeUpgrade),
		adminv1.ActionUpgradeAbort:        forward(e.rpc.AbortUpgrade),
		adminv1.ActionUpgradeAcknowledge:  forward(e.rpc.AcknowledgeUpgradeGate),
		adminv1.ActionUpgradePolicyApply:  forward(e.rpc.ApplyUpgradePolicy),
		adminv1.ActionUpgradePolicyDelete: forward(e.rpc.DeleteUpgradePolicy),

		adminv1.ActionShardUpdate:     forward(e.rpc.UpdateProvisionShard),
		adminv1.ActionShardRegister:   forward(e.rpc.RegisterProvisionShard),
		adminv1.ActionShardDrain:      forward(e.rpc.DrainProvisionShard),
		adminv1.ActionShardDeregister: forward(e.rpc.DeregisterProvisionShard),
		adminv1.ActionPlacementSet:    forward(e.rpc.SetPlacementPolicy),
		adminv1.ActionOrphanDelete:    forward(e.rpc.DeleteOrphan),

		adminv1.ActionDriftReconcile: e.reconcile,
		adminv1.ActionDriftDelete:    e.deleteDrift,

		adminv1.ActionCredentialRequest: decoded(e.requestCredential),
		adminv1.ActionCredentialRevoke:  decoded(e.revokeCredentials),

		adminv1.ActionNodePoolScale:      decoded(e.scale),
		adminv1.ActionARMOperationRetry:  e.retryARMOperation,
		adminv1.ActionARMOperationCancel: e.cancelARMOperation,
	}
}

// forward returns an action that calls Cluster Service. The operation's parameters are the request; the actor and a
// missing UID are set from the operation.
func forward[Q, A proto.Message](call func(ctx context.Context, request Q, options ...grpc.CallOption) (A, error)) action {
	return func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
		var none Q
		request := none.ProtoReflect().New().Interface().(Q)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(o.Parameters, request); err != nil {
			return nil, invalidParameters(err)
		}
		message := request.ProtoReflect()
		fields := message.Descriptor().Fields()
		if field := fields.ByName("actor"); field != nil {
			message.Set(field, protoreflect.ValueOfMessage(actorOf(o).ProtoReflect()))
		}
		if field := fields.ByName("uid"); field != nil && !message.Has(field) {
			message.Set(field, protoreflect.ValueOfString(o.OperationID))
		} else {
			// The request has no UID. Cluster Service recognizes a repetition by the call ID; otherwise it would reject
			// or repeat it.
			ctx = metadata.AppendToOutgoingContext(ctx, clusterservice.CallIDKey, o.OperationID)
		}
		response, err := call(ctx, request)
		switch {
		case err != nil && apierror.As(apierror.FromGRPC(err)).Reason == clusterservice.ReasonCallDone:
			return nil, nil // an earlier attempt has succeeded, and its response was lost
		case err != nil:
			return nil, apierror.FromGRPC(err)
		}
		return adminv1.Message[A]{Of: response}, nil
	}
}

// decoded returns an action with decoded parameters.
func decoded[P any](do func(ctx context.Context, o *database.AdminOperationDocument, parameters P) (any, error)) action {
	return func(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
		var parameters P
		if err := json.Unmarshal(o.Parameters, &parameters); err != nil {
			return nil, invalidParameters(err)
		}
		return do(ctx, o, parameters)
	}
}

func invalidParameters(err error) error {
	return apierror.New(apierror.Invalid, "The parameters of the operation cannot be read.").WithCause(fmt.Errorf("decoding: %w", err))
}

// actorOf returns the actor in the form of Cluster Service's API.
func actorOf(o *database.AdminOperationDocument) *clusterservicev1.Actor {
	return &clusterservicev1.Actor{Name: nameOf(o), Reason: o.Actor.Reason, Ticket: o.Actor.Ticket}
}

// maxActorName and maxReason are the limits of Cluster Service, in bytes.
const (
	maxActorName = 256
	maxReason    = 1024
)

func nameOf(o *database.AdminOperationDocument) string {
	return truncate(cmp.Or(o.Actor.Name, o.Actor.ObjectID), maxActorName)
}

// reasonOf returns the ticket and the reason as one text.
func reasonOf(o *database.AdminOperationDocument) string {
	text := o.Actor.Reason
	if o.Actor.Ticket != "" {
		text = o.Actor.Ticket + ": " + text
	}
	return truncate(text, maxReason)
}

// truncate returns at most limit bytes of a text. It does not split a character, because protobuf requires valid UTF-8.
func truncate(text string, limit int) string {
	for ; len(text) > limit; limit-- {
		if utf8.RuneStart(text[limit]) {
			return text[:limit]
		}
	}
	return text
}

func (e *Executor) requestCredential(ctx context.Context, o *database.AdminOperationDocument, p adminv1.CredentialRequest) (any, error) {
	lifetime, err := time.ParseDuration(p.Duration)
	if err != nil {
		return nil, invalidParameters(err)
	}
	c, err := e.rpc.ApplyBreakGlassCredential(ctx, &clusterservicev1.ApplyBreakGlassCredentialRequest{
		Uid: o.OperationID, ClusterUid: o.Target.ClusterUID,
		Spec: &clusterservicev1.BreakGlassCredentialSpec{
			Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, CertificateSigningRequest: p.CertificateSigningRequest,
			Lifetime: durationpb.New(lifetime), Requester: nameOf(o), Reason: reasonOf(o),
		},
	})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	// The certificate signing request is left out, because the parameters contain it.
	return adminv1.FleetCredential{Of: &clusterservicev1.BreakGlassCredential{Uid: c.GetUid(), ClusterUid: c.GetClusterUid(), CreateTime: c.GetCreateTime()}}, nil
}

// revocableClasses maps the classes of adminv1.RevokeRequest to those of Cluster Service.
var revocableClasses = map[string]clusterservicev1.BreakGlassClass{
	"customer": clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER,
	"sre":      clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE,
}

func (e *Executor) revokeCredentials(ctx context.Context, o *database.AdminOperationDocument, p adminv1.RevokeRequest) (any, error) {
	class, ok := revocableClasses[p.Class]
	if !ok {
		return nil, apierror.New(apierror.Invalid, "Unsupported value: %q: supported values: customer, sre", p.Class).WithTarget("class")
	}
	v, err := e.rpc.RevokeBreakGlassCredentials(ctx, &clusterservicev1.RevokeBreakGlassCredentialsRequest{
		Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Class: class, Requester: nameOf(o), Reason: reasonOf(o),
	})
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	return adminv1.FleetRevocation{Of: &clusterservicev1.BreakGlassRevocation{Uid: v.GetUid(), ClusterUid: v.GetClusterUid(), Class: v.GetClass(), CreateTime: v.GetCreateTime()}}, nil
}
