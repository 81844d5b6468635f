package clusterservice

import (
	"fmt"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ExternalAuthRequest translates an external authentication document; see ClusterRequest.
func ExternalAuthRequest(document *database.ExternalAuthDocument) (*clusterservicev1.ApplyExternalAuthRequest, error) {
	var invalid violations
	p := &document.ExternalAuth.Properties
	username := &p.Claim.Mappings.Username
	spec := &clusterservicev1.ExternalAuthSpec{
		Name: document.ExternalAuth.Name,
		Issuer: &clusterservicev1.TokenIssuer{
			Url: p.Issuer.URL, Audiences: p.Issuer.Audiences, CertificateAuthority: p.Issuer.CA,
		},
		ClaimMappings: &clusterservicev1.ClaimMappings{
			Username: &clusterservicev1.UsernameMapping{
				Claim: username.Claim, Prefix: username.Prefix,
				PrefixPolicy: lookup(&invalid, "properties.claim.mappings.username.prefixPolicy", username.PrefixPolicy, prefixPolicies),
			},
		},
	}
	if groups := p.Claim.Mappings.Groups; groups != nil {
		spec.ClaimMappings.Groups = &clusterservicev1.GroupsMapping{Claim: groups.Claim, Prefix: groups.Prefix}
	}
	for i, client := range p.Clients {
		spec.Clients = append(spec.Clients, &clusterservicev1.OidcClient{
			ComponentName: client.Component.Name, ComponentNamespace: client.Component.AuthClientNamespace,
			ClientId: client.ClientID, ExtraScopes: client.ExtraScopes,
			Type: lookup(&invalid, fmt.Sprintf("properties.clients[%d].type", i), client.Type, clientTypes),
		})
	}
	for i, rule := range p.Claim.ValidationRules {
		path := fmt.Sprintf("properties.claim.validationRules[%d]", i)
		lookup(&invalid, path+".type", rule.Type, validationRules)
		// A rule without its claim would accept every token.
		if rule.RequiredClaim == nil {
			invalid.add(path+".requiredClaim", "Required value")
			continue
		}
		spec.RequiredClaims = append(spec.RequiredClaims, &clusterservicev1.RequiredClaim{
			Claim: rule.RequiredClaim.Claim, RequiredValue: rule.RequiredClaim.RequiredValue,
		})
	}
	if err := invalid.err(); err != nil {
		return nil, err
	}
	return &clusterservicev1.ApplyExternalAuthRequest{
		Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.ExternalAuth.ID, Generation: document.Generation, Spec: spec,
	}, nil
}

// DeleteExternalAuthRequest returns the request that deletes the document's incarnation.
func DeleteExternalAuthRequest(document *database.ExternalAuthDocument) *clusterservicev1.DeleteExternalAuthRequest {
	return &clusterservicev1.DeleteExternalAuthRequest{Uid: document.UID, ClusterUid: document.ClusterUID, ResourceId: document.ExternalAuth.ID}
}
