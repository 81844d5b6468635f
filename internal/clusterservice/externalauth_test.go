package clusterservice

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestExternalAuthRequest(t *testing.T) {
	d := &database.ExternalAuthDocument{UID: "33333333-3333-3333-3333-333333333333", ClusterUID: "11111111-1111-1111-1111-111111111111", Generation: 2}
	d.ExternalAuth.Resource = hub.Resource{ID: clusterID + "/externalAuths/Entra", Name: "Entra"}
	d.ExternalAuth.Properties = hub.ExternalAuthProperties{
		Issuer: hub.TokenIssuer{URL: "https://issuer.example/v2.0", Audiences: []string{"a", "b"}, CA: "pem"},
		Clients: []hub.ExternalAuthClient{
			{Component: hub.ExternalAuthComponent{Name: "console", AuthClientNamespace: "openshift-console"}, ClientID: "a", ExtraScopes: []string{"email"}, Type: "Confidential"},
			{Component: hub.ExternalAuthComponent{Name: "cli", AuthClientNamespace: "openshift-console"}, ClientID: "b", Type: "Public"},
		},
		Claim: hub.ExternalAuthClaim{
			Mappings: hub.TokenClaimMappings{
				Username: hub.UsernameClaim{Claim: "email", Prefix: "oidc:", PrefixPolicy: "Prefix"},
				Groups:   &hub.GroupClaim{Claim: "groups", Prefix: "oidc:"},
			},
			ValidationRules: []hub.TokenClaimValidationRule{{Type: "RequiredClaim", RequiredClaim: &hub.RequiredClaim{Claim: "tid", RequiredValue: "tenant"}}},
		},
	}
	request := must.Get(ExternalAuthRequest(d))(t)
	golden(t, "externalauth_full", request)
	if deletion := DeleteExternalAuthRequest(d); deletion.GetUid() != d.UID || deletion.GetClusterUid() != d.ClusterUID || deletion.GetResourceId() != d.ExternalAuth.ID {
		t.Errorf("unexpected deletion request %v", deletion)
	}
}

func TestCredentialRequests(t *testing.T) {
	credential := CredentialRequest(&database.CredentialDocument{
		UID: "operation", ClusterUID: "cluster", CertificateSigningRequest: "pem", SealedPrivateKey: []byte("sealed"), Requester: "alice@example.com",
	})
	want := &clusterservicev1.ApplyBreakGlassCredentialRequest{Uid: "operation", ClusterUid: "cluster", Spec: &clusterservicev1.BreakGlassCredentialSpec{
		Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, CertificateSigningRequest: "pem", Requester: "alice@example.com",
	}}
	if diff := cmp.Diff(want, credential, protocmp.Transform()); diff != "" {
		t.Errorf("credential request (-want +got):\n%s", diff)
	}
	revocation := RevocationRequest(&database.OperationDocument{OperationID: "operation", UID: "cluster", Requester: "alice@example.com"})
	if diff := cmp.Diff(&clusterservicev1.RevokeBreakGlassCredentialsRequest{
		Uid: "operation", ClusterUid: "cluster", Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, Requester: "alice@example.com",
	}, revocation, protocmp.Transform()); diff != "" {
		t.Errorf("revocation request (-want +got):\n%s", diff)
	}
}
