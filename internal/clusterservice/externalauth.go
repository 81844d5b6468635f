package clusterservice

import (
	"context"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ApplyExternalAuth sends the desired state of the document's generation.
func (c *Client) ApplyExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (*clusterservicev1.ExternalAuth, error) {
	report, err := c.rpc.ApplyExternalAuth(ctx, ExternalAuthRequest(document))
	return report, apierror.FromGRPC(err)
}

// DeleteExternalAuth asks for the deletion of the document's incarnation.
func (c *Client) DeleteExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (*clusterservicev1.ExternalAuth, error) {
	report, err := c.rpc.DeleteExternalAuth(ctx, DeleteExternalAuthRequest(document))
	return report, apierror.FromGRPC(err)
}

// GetExternalAuth reads the report of an incarnation; kind NotFound when Cluster Service does not know it.
func (c *Client) GetExternalAuth(ctx context.Context, uid string) (*clusterservicev1.ExternalAuth, error) {
	report, err := c.rpc.GetExternalAuth(ctx, &clusterservicev1.GetExternalAuthRequest{Uid: uid})
	return report, apierror.FromGRPC(err)
}

// ExternalAuthRequest translates an external auth; see ClusterRequest.
func ExternalAuthRequest(document *database.ExternalAuthDocument) *clusterservicev1.ApplyExternalAuthRequest {
	p := &document.ExternalAuth.Properties
	username := &p.Claim.Mappings.Username
	spec := &clusterservicev1.ExternalAuthSpec{
		Name: document.ExternalAuth.Name,
		Issuer: &clusterservicev1.TokenIssuer{
			Url: p.Issuer.URL, Audiences: p.Issuer.Audiences, CertificateAuthority: p.Issuer.CA,
		},
		ClaimMappings: &clusterservicev1.ClaimMappings{
			Username: &clusterservicev1.UsernameMapping{Claim: username.Claim, Prefix: username.Prefix, PrefixPolicy: prefixPolicy(username.PrefixPolicy)},
		},
	}
	if groups := p.Claim.Mappings.Groups; groups != nil {
		spec.ClaimMappings.Groups = &clusterservicev1.GroupsMapping{Claim: groups.Claim, Prefix: groups.Prefix}
	}
	for _, client := range p.Clients {
		spec.Clients = append(spec.Clients, &clusterservicev1.OidcClient{
			ComponentName: client.Component.Name, ComponentNamespace: client.Component.AuthClientNamespace,
			ClientId: client.ClientID, ExtraScopes: client.ExtraScopes, Type: clientType(client.Type),
		})
	}
	for _, rule := range p.Claim.ValidationRules {
		if claim := rule.RequiredClaim; claim != nil {
			spec.RequiredClaims = append(spec.RequiredClaims, &clusterservicev1.RequiredClaim{Claim: claim.Claim, RequiredValue: claim.RequiredValue})
		}
	}
	return &clusterservicev1.ApplyExternalAuthRequest{
		Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.ExternalAuth.ID, Generation: document.Generation, Spec: spec,
	}
}

// DeleteExternalAuthRequest asks for the deletion of the document's incarnation.
func DeleteExternalAuthRequest(document *database.ExternalAuthDocument) *clusterservicev1.DeleteExternalAuthRequest {
	return &clusterservicev1.DeleteExternalAuthRequest{Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.ExternalAuth.ID}
}

func clientType(word string) clusterservicev1.OidcClientType {
	switch word {
	case "Confidential":
		return clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL
	case "Public":
		return clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC
	}
	return clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_UNSPECIFIED
}

// prefixPolicy leaves None and nothing to the platform.
func prefixPolicy(word string) clusterservicev1.UsernamePrefixPolicy {
	switch word {
	case "Prefix":
		return clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX
	case "NoPrefix":
		return clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX
	}
	return clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_UNSPECIFIED
}
