package clusterservice

import (
	"context"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ApplyCredential asks for the credential of a document.
func (c *Client) ApplyCredential(ctx context.Context, document *database.CredentialDocument) (*clusterservicev1.BreakGlassCredential, error) {
	report, err := c.rpc.ApplyBreakGlassCredential(ctx, CredentialRequest(document))
	return report, apierror.FromGRPC(err)
}

// GetCredential reads how a credential stands, with its certificate when it is issued; kind NotFound when Cluster Service
// does not know it.
func (c *Client) GetCredential(ctx context.Context, uid string) (*clusterservicev1.BreakGlassCredential, error) {
	report, err := c.rpc.GetBreakGlassCredential(ctx, &clusterservicev1.GetBreakGlassCredentialRequest{Uid: uid})
	return report, apierror.FromGRPC(err)
}

// RevokeCredentials asks for what an operation of RevokeCredentialsRequest is to do.
func (c *Client) RevokeCredentials(ctx context.Context, operation *database.OperationDocument) (*clusterservicev1.BreakGlassRevocation, error) {
	report, err := c.rpc.RevokeBreakGlassCredentials(ctx, RevocationRequest(operation))
	return report, apierror.FromGRPC(err)
}

// GetRevocation reads how a revocation stands; kind NotFound when Cluster Service does not know it.
func (c *Client) GetRevocation(ctx context.Context, uid string) (*clusterservicev1.BreakGlassRevocation, error) {
	report, err := c.rpc.GetBreakGlassRevocation(ctx, &clusterservicev1.GetBreakGlassRevocationRequest{Uid: uid})
	return report, apierror.FromGRPC(err)
}

// CredentialRequest translates a request for a credential of the customer's; its certificate lives as long as Cluster
// Service makes them by default, 24 hours.
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

// RevocationRequest translates an operation that revokes the customer's credentials of a cluster.
func RevocationRequest(operation *database.OperationDocument) *clusterservicev1.RevokeBreakGlassCredentialsRequest {
	return &clusterservicev1.RevokeBreakGlassCredentialsRequest{
		Uid: operation.OperationID, ClusterUid: operation.UID,
		Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, Requester: operation.Requester,
	}
}
