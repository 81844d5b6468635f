package clusterservice

import (
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// CredentialRequest translates a credential document into a request for a break-glass credential of class customer. The
// request names no lifetime, so that Cluster Service's default of 24 hours applies.
func CredentialRequest(document *database.CredentialDocument) *clusterservicev1.ApplyBreakGlassCredentialRequest {
	return &clusterservicev1.ApplyBreakGlassCredentialRequest{
		Uid: document.UID, ClusterUid: document.ClusterUID,
		Spec: &clusterservicev1.BreakGlassCredentialSpec{
			Class:                     clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER,
			CertificateSigningRequest: document.CertificateSigningRequest,
			Requester:                 document.Requester,
		},
	}
}

// RevocationRequest translates an operation that revokes a cluster's credentials of class customer.
func RevocationRequest(operation *database.OperationDocument) *clusterservicev1.RevokeBreakGlassCredentialsRequest {
	return &clusterservicev1.RevokeBreakGlassCredentialsRequest{
		Uid: operation.OperationID, ClusterUid: operation.UID,
		Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, Requester: operation.Requester,
	}
}
