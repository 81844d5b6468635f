package render

import (
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// issuerCAName returns the name of the ConfigMap with the certificate authorities of the issuer.
func issuerCAName(a *fleet.ExternalAuth) string { return a.ProviderName() + "-issuer-ca" }

// authentication returns spec.configuration.authentication of the HostedCluster.
func authentication(a *fleet.ExternalAuth) (*configv1.AuthenticationSpec, error) {
	spec := a.Spec
	provider := configv1.OIDCProvider{Name: a.ProviderName(), Issuer: configv1.TokenIssuer{URL: spec.GetIssuer().GetUrl()}}
	for _, audience := range spec.GetIssuer().GetAudiences() {
		provider.Issuer.Audiences = append(provider.Issuer.Audiences, configv1.TokenAudience(audience))
	}
	if spec.GetIssuer().GetCertificateAuthority() != "" {
		provider.Issuer.CertificateAuthority.Name = issuerCAName(a)
	}
	for i, c := range spec.GetClients() {
		client := configv1.OIDCClientConfig{ComponentName: c.GetComponentName(), ComponentNamespace: c.GetComponentNamespace(),
			ClientID: c.GetClientId(), ExtraScopes: c.GetExtraScopes()}
		confidential, err := isConfidential(i, c)
		if err != nil {
			return nil, err
		}
		if confidential {
			client.ClientSecret.Name = fleet.ClientSecretName(spec, c)
		}
		provider.OIDCClients = append(provider.OIDCClients, client)
	}
	for _, claim := range spec.GetRequiredClaims() {
		provider.ClaimValidationRules = append(provider.ClaimValidationRules, configv1.TokenClaimValidationRule{
			Type:          configv1.TokenValidationRuleTypeRequiredClaim,
			RequiredClaim: &configv1.TokenRequiredClaim{Claim: claim.GetClaim(), RequiredValue: claim.GetRequiredValue()}})
	}
	var err error
	provider.ClaimMappings, err = claimMappings(spec.GetClaimMappings())
	return &configv1.AuthenticationSpec{Type: configv1.AuthenticationTypeOIDC, OIDCProviders: []configv1.OIDCProvider{provider}}, err
}

// isConfidential reports whether client i of an external authentication has a secret.
func isConfidential(i int, c *csv1.OidcClient) (bool, error) {
	switch c.GetType() {
	case csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL:
		return true, nil
	case csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC:
		return false, nil
	case csv1.OidcClientType_OIDC_CLIENT_TYPE_UNSPECIFIED:
	}
	return false, unsupported(fmt.Sprintf("spec.clients[%d].type", i), c.GetType(),
		csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL, csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC)
}

func claimMappings(m *csv1.ClaimMappings) (configv1.TokenClaimMappings, error) {
	mappings := configv1.TokenClaimMappings{Username: configv1.UsernameClaimMapping{Claim: m.GetUsername().GetClaim()}}
	switch policy := m.GetUsername().GetPrefixPolicy(); policy {
	case csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_UNSPECIFIED: // OpenShift chooses the prefix
		mappings.Username.PrefixPolicy = configv1.NoOpinion
	case csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX:
		mappings.Username.PrefixPolicy = configv1.NoPrefix
	case csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX:
		mappings.Username.PrefixPolicy = configv1.Prefix
		mappings.Username.Prefix = &configv1.UsernamePrefix{PrefixString: m.GetUsername().GetPrefix()}
	default:
		return mappings, unsupported("spec.claim_mappings.username.prefix_policy", policy,
			csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_UNSPECIFIED, csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX,
			csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX)
	}
	if groups := m.GetGroups(); groups != nil {
		mappings.Groups = configv1.PrefixedClaimMapping{TokenClaimMapping: configv1.TokenClaimMapping{Claim: groups.GetClaim()}, Prefix: groups.GetPrefix()}
	}
	return mappings, nil
}

// externalAuthObjects returns the objects that the authentication of the HostedCluster refers to. a is nil for a cluster
// without external authentication.
func (r *Renderer) externalAuthObjects(c *fleet.Cluster, a *fleet.ExternalAuth) ([]metav1.Object, error) {
	if a == nil {
		return nil, nil
	}
	var objects []metav1.Object
	if ca := a.Spec.GetIssuer().GetCertificateAuthority(); ca != "" {
		objects = append(objects, &corev1.ConfigMap{TypeMeta: typeMeta(corev1.SchemeGroupVersion, "ConfigMap"),
			ObjectMeta: r.metadata(c, issuerCAName(a), r.namespaceOf(c)), Data: map[string]string{"ca-bundle.crt": ca}})
	}
	for i, client := range a.Spec.GetClients() {
		confidential, err := isConfidential(i, client)
		if err != nil {
			return nil, err
		}
		if !confidential {
			continue
		}
		// The customer provides the content inside the hosted cluster. HyperShift does not touch a secret with this annotation,
		// so no secret of a customer passes through this service.
		secret := r.secret(c, fleet.ClientSecretName(a.Spec, client), corev1.SecretTypeOpaque, nil)
		secret.Annotations = map[string]string{hyperv1.HostedClusterSourcedAnnotation: "true"}
		objects = append(objects, secret)
	}
	return objects, nil
}
