package adminaction

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Request is the request of Cluster Service that executes an action.
type Request struct {
	// Method is the full name of the gRPC method.
	Method  string
	Message proto.Message
	// OwnUID reports whether the operation's ID is the UID of the request, by which Cluster Service recognizes a repetition. It
	// recognizes other requests by the ID of the call, which is the operation's ID.
	OwnUID bool
}

// RequestOf returns the request of Cluster Service that executes an operation; nil if the action is executed by other means.
func RequestOf(o *database.AdminOperationDocument) (*Request, error) {
	switch o.Action {
	case adminv1.ActionCredentialRevokeOne:
		return &Request{Method: clusterservicev1.ClusterService_RevokeBreakGlassCredential_FullMethodName, OwnUID: true,
			Message: &clusterservicev1.RevokeBreakGlassCredentialRequest{
				Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, CredentialUid: o.Target.ID, Requester: ActorName(o), Reason: Justification(o),
			}}, nil
	case adminv1.ActionElevationEnd:
		if adminv1.HasTokenSessions(o.Target.Kind) {
			return nil, nil
		}
		return &Request{Method: clusterservicev1.ClusterService_RevokeBreakGlassCredentials_FullMethodName, OwnUID: true,
			Message: &clusterservicev1.RevokeBreakGlassCredentialsRequest{
				Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Elevation: o.Actor.ElevationID,
				Requester: ActorName(o), Reason: Justification(o),
			}}, nil
	case adminv1.ActionCredentialRequest, adminv1.ActionAccessSessionRequest:
		return credentialRequest(o)
	case adminv1.ActionCredentialRevoke:
		return revocationRequest(o)
	}
	action := adminv1.FindAction(o.Action)
	if action == nil || action.RPC == nil {
		return nil, nil
	}
	message := action.RPC.New()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(o.Parameters, message); err != nil {
		return nil, InvalidParameters(err)
	}
	fields := message.ProtoReflect().Descriptor().Fields()
	if field := fields.ByName("actor"); field != nil {
		actor := &clusterservicev1.Actor{Name: ActorName(o), Reason: o.Actor.Reason, Ticket: o.Actor.Ticket}
		message.ProtoReflect().Set(field, protoreflect.ValueOfMessage(actor.ProtoReflect()))
	}
	request := &Request{Method: action.RPC.Method(), Message: message}
	if field := fields.ByName("uid"); field != nil && !message.ProtoReflect().Has(field) {
		message.ProtoReflect().Set(field, protoreflect.ValueOfString(o.OperationID))
		request.OwnUID = true
	}
	return request, nil
}

func credentialRequest(o *database.AdminOperationDocument) (*Request, error) {
	var parameters adminv1.CredentialRequest
	if err := json.Unmarshal(o.Parameters, &parameters); err != nil {
		return nil, InvalidParameters(err)
	}
	lifetime, err := time.ParseDuration(parameters.Duration)
	if err != nil {
		return nil, InvalidParameters(err)
	}
	level, err := levelOf(parameters.Level)
	if err != nil {
		return nil, err
	}
	return &Request{Method: clusterservicev1.ClusterService_ApplyBreakGlassCredential_FullMethodName, OwnUID: true,
		Message: &clusterservicev1.ApplyBreakGlassCredentialRequest{
			Uid: o.OperationID, ClusterUid: o.Target.ClusterUID,
			Spec: &clusterservicev1.BreakGlassCredentialSpec{
				Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, CertificateSigningRequest: parameters.CertificateSigningRequest,
				Lifetime: durationpb.New(lifetime), Requester: ActorName(o), Reason: Justification(o), Level: level,
			},
		}}, nil
}

// levelOf returns the level of Cluster Service's API.
func levelOf(level adminv1.Level) (clusterservicev1.BreakGlassLevel, error) {
	switch level {
	case adminv1.LevelReader:
		return clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER, nil
	case adminv1.LevelAdmin:
		return clusterservicev1.BreakGlassLevel_BREAK_GLASS_LEVEL_ADMIN, nil
	}
	return 0, apierror.New(apierror.Invalid, "Unsupported value: %q: supported values: %q", level, adminv1.Levels()).WithTarget("level")
}

func revocationRequest(o *database.AdminOperationDocument) (*Request, error) {
	var parameters adminv1.RevokeRequest
	if err := json.Unmarshal(o.Parameters, &parameters); err != nil {
		return nil, InvalidParameters(err)
	}
	var class clusterservicev1.BreakGlassClass
	switch parameters.Class {
	case "customer":
		class = clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER
	case "sre":
		class = clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE
	default:
		return nil, apierror.New(apierror.Invalid, "Unsupported value: %q: supported values: customer, sre", parameters.Class).WithTarget("class")
	}
	return &Request{Method: clusterservicev1.ClusterService_RevokeBreakGlassCredentials_FullMethodName, OwnUID: true,
		Message: &clusterservicev1.RevokeBreakGlassCredentialsRequest{
			Uid: o.OperationID, ClusterUid: o.Target.ClusterUID, Class: class, Requester: ActorName(o), Reason: Justification(o),
		}}, nil
}
