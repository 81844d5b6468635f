package render

import (
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// hostedClusterSourced marks an empty secret beside the HostedCluster whose content the customer provides inside the
// hosted cluster: HyperShift leaves that one alone, and no secret of the customer's passes through the service.
const hostedClusterSourced = "hypershift.openshift.io/hosted-cluster-sourced"

// issuerCAName is the ConfigMap with the certificates that vouch for the issuer.
func issuerCAName(a *fleet.ExternalAuth) string { return a.ProviderName() + "-issuer-ca" }

// authentication is the HostedCluster's spec.configuration.authentication.
func authentication(a *fleet.ExternalAuth) object {
	spec := a.Spec
	issuer := object{"issuerURL": spec.GetIssuer().GetUrl(), "audiences": anys(spec.GetIssuer().GetAudiences())}
	if spec.GetIssuer().GetCertificateAuthority() != "" {
		issuer["issuerCertificateAuthority"] = object{"name": issuerCAName(a)}
	}
	provider := object{"name": a.ProviderName(), "issuer": issuer, "claimMappings": claimMappings(spec.GetClaimMappings())}
	var clients []any
	for _, c := range spec.GetClients() {
		client := object{"componentName": c.GetComponentName(), "componentNamespace": c.GetComponentNamespace(), "clientID": c.GetClientId()}
		if c.GetType() == csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL {
			client["clientSecret"] = object{"name": fleet.ClientSecretName(spec, c)}
		}
		if len(c.GetExtraScopes()) > 0 {
			client["extraScopes"] = anys(c.GetExtraScopes())
		}
		clients = append(clients, client)
	}
	if len(clients) > 0 {
		provider["oidcClients"] = clients
	}
	var rules []any
	for _, claim := range spec.GetRequiredClaims() {
		rules = append(rules, object{"type": "RequiredClaim", "requiredClaim": object{"claim": claim.GetClaim(), "requiredValue": claim.GetRequiredValue()}})
	}
	if len(rules) > 0 {
		provider["claimValidationRules"] = rules
	}
	return object{"type": "OIDC", "oidcProviders": []any{provider}}
}

func claimMappings(m *csv1.ClaimMappings) object {
	username := object{"claim": m.GetUsername().GetClaim()}
	switch m.GetUsername().GetPrefixPolicy() {
	case csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX:
		username["prefixPolicy"], username["prefix"] = "Prefix", object{"prefixString": m.GetUsername().GetPrefix()}
	case csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX:
		username["prefixPolicy"] = "NoPrefix"
	}
	mappings := object{"username": username}
	if groups := m.GetGroups(); groups != nil {
		mapping := object{"claim": groups.GetClaim()}
		if groups.GetPrefix() != "" {
			mapping["prefix"] = groups.GetPrefix()
		}
		mappings["groups"] = mapping
	}
	return mappings
}

// externalAuthObjects are what the authentication refers to, beside the HostedCluster.
func (r *Renderer) externalAuthObjects(c *fleet.Cluster, a *fleet.ExternalAuth) []object {
	if a == nil {
		return nil
	}
	var objects []object
	if ca := a.Spec.GetIssuer().GetCertificateAuthority(); ca != "" {
		objects = append(objects, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": r.metadata(c, issuerCAName(a), r.namespaceOf(c)),
			"data": object{"ca-bundle.crt": ca}})
	}
	for _, client := range a.Spec.GetClients() {
		if client.GetType() != csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL {
			continue
		}
		metadata := r.metadata(c, fleet.ClientSecretName(a.Spec, client), r.namespaceOf(c))
		metadata["annotations"].(object)[hostedClusterSourced] = "true"
		objects = append(objects, object{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
	}
	return objects
}
