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
	method, message := forwarded(o.Action)
	if message == nil {
		return nil, nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(o.Parameters, message); err != nil {
		return nil, InvalidParameters(err)
	}
	fields := message.ProtoReflect().Descriptor().Fields()
	if field := fields.ByName("actor"); field != nil {
		actor := &clusterservicev1.Actor{Name: ActorName(o), Reason: o.Actor.Reason, Ticket: o.Actor.Ticket}
		message.ProtoReflect().Set(field, protoreflect.ValueOfMessage(actor.ProtoReflect()))
	}
	request := &Request{Method: method, Message: message}
	if field := fields.ByName("uid"); field != nil && !message.ProtoReflect().Has(field) {
		message.ProtoReflect().Set(field, protoreflect.ValueOfString(o.OperationID))
		request.OwnUID = true
	}
	return request, nil
}

// forwarded returns the method of an action whose parameters are a request of Cluster Service, and an empty request.
func forwarded(action string) (method string, request proto.Message) {
	switch action {
	case adminv1.ActionClusterPause:
		return clusterservicev1.ClusterService_PauseCluster_FullMethodName, &clusterservicev1.PauseClusterRequest{}
	case adminv1.ActionClusterResume:
		return clusterservicev1.ClusterService_ResumeCluster_FullMethodName, &clusterservicev1.ResumeClusterRequest{}
	case adminv1.ActionClusterSetSize:
		return clusterservicev1.ClusterService_SetClusterSize_FullMethodName, &clusterservicev1.SetClusterSizeRequest{}
	case adminv1.ActionClusterRetry:
		return clusterservicev1.ClusterService_RetryCluster_FullMethodName, &clusterservicev1.RetryClusterRequest{}
	case adminv1.ActionClusterForce:
		return clusterservicev1.ClusterService_ForceClusterStep_FullMethodName, &clusterservicev1.ForceClusterStepRequest{}
	case adminv1.ActionClusterAccept:
		return clusterservicev1.ClusterService_AcceptControlPlane_FullMethodName, &clusterservicev1.AcceptControlPlaneRequest{}
	case adminv1.ActionDeletionRetry:
		return clusterservicev1.ClusterService_RetryDeletion_FullMethodName, &clusterservicev1.RetryDeletionRequest{}
	case adminv1.ActionDeletionRelease:
		return clusterservicev1.ClusterService_ReleaseDeletionFinalizers_FullMethodName, &clusterservicev1.ReleaseDeletionFinalizersRequest{}
	case adminv1.ActionDeletionForce:
		return clusterservicev1.ClusterService_ForceDeletionStep_FullMethodName, &clusterservicev1.ForceDeletionStepRequest{}
	case adminv1.ActionUpgradeStart:
		return clusterservicev1.ClusterService_StartUpgrade_FullMethodName, &clusterservicev1.StartUpgradeRequest{}
	case adminv1.ActionUpgradePause:
		return clusterservicev1.ClusterService_PauseUpgrade_FullMethodName, &clusterservicev1.PauseUpgradeRequest{}
	case adminv1.ActionUpgradeResume:
		return clusterservicev1.ClusterService_ResumeUpgrade_FullMethodName, &clusterservicev1.ResumeUpgradeRequest{}
	case adminv1.ActionUpgradeAbort:
		return clusterservicev1.ClusterService_AbortUpgrade_FullMethodName, &clusterservicev1.AbortUpgradeRequest{}
	case adminv1.ActionUpgradeAcknowledge:
		return clusterservicev1.ClusterService_AcknowledgeUpgradeGate_FullMethodName, &clusterservicev1.AcknowledgeUpgradeGateRequest{}
	case adminv1.ActionUpgradePolicyApply:
		return clusterservicev1.ClusterService_ApplyUpgradePolicy_FullMethodName, &clusterservicev1.ApplyUpgradePolicyRequest{}
	case adminv1.ActionUpgradePolicyDelete:
		return clusterservicev1.ClusterService_DeleteUpgradePolicy_FullMethodName, &clusterservicev1.DeleteUpgradePolicyRequest{}
	case adminv1.ActionShardUpdate:
		return clusterservicev1.ClusterService_UpdateProvisionShard_FullMethodName, &clusterservicev1.UpdateProvisionShardRequest{}
	case adminv1.ActionShardRegister:
		return clusterservicev1.ClusterService_RegisterProvisionShard_FullMethodName, &clusterservicev1.RegisterProvisionShardRequest{}
	case adminv1.ActionShardDrain:
		return clusterservicev1.ClusterService_DrainProvisionShard_FullMethodName, &clusterservicev1.DrainProvisionShardRequest{}
	case adminv1.ActionShardDeregister:
		return clusterservicev1.ClusterService_DeregisterProvisionShard_FullMethodName, &clusterservicev1.DeregisterProvisionShardRequest{}
	case adminv1.ActionPlacementSet:
		return clusterservicev1.ClusterService_SetPlacementPolicy_FullMethodName, &clusterservicev1.SetPlacementPolicyRequest{}
	case adminv1.ActionOrphanDelete:
		return clusterservicev1.ClusterService_DeleteOrphan_FullMethodName, &clusterservicev1.DeleteOrphanRequest{}
	}
	return "", nil
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
