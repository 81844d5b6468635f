package hostedcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// HostedSecrets reads secrets inside hosted clusters. hostedclient.SecretWatcher implements it.
type HostedSecrets interface {
	Has(ctx context.Context, controlPlane, secret, key string) (has, known bool)
	Forget(controlPlane string)
}

const (
	// clientSecretKey is the data key of an OIDC client's secret.
	clientSecretKey = "clientSecret"
	issuerCAKey     = "ca-bundle.crt"
)

// Reasons of the console operator's conditions about its OIDC client.
const (
	reasonOIDCAvailable     = "OIDCConfigAvailable"
	reasonOIDCSecretMissing = "OIDCClientSecretGet"
	reasonOIDCUnknown       = "Unknown"
)

// oidcSpec returns the external authentication of a cluster; nil if it has none.
func oidcSpec(configuration *hyperv1.ClusterConfiguration) *configv1.AuthenticationSpec {
	if configuration == nil || configuration.Authentication == nil || configuration.Authentication.Type != configv1.AuthenticationTypeOIDC {
		return nil
	}
	return configuration.Authentication
}

// The structured authentication configuration of kube-apiserver, with the fields that HyperShift uses.
type (
	authenticationConfiguration struct {
		APIVersion string             `json:"apiVersion"`
		Kind       string             `json:"kind"`
		JWT        []jwtAuthenticator `json:"jwt"`
	}
	jwtAuthenticator struct {
		Issuer               jwtIssuer   `json:"issuer"`
		ClaimValidationRules []jwtRule   `json:"claimValidationRules,omitempty"`
		ClaimMappings        jwtMappings `json:"claimMappings"`
	}
	jwtIssuer struct {
		URL                  string   `json:"url"`
		Audiences            []string `json:"audiences"`
		AudienceMatchPolicy  string   `json:"audienceMatchPolicy"`
		CertificateAuthority string   `json:"certificateAuthority,omitempty"`
		EgressSelectorType   string   `json:"egressSelectorType,omitempty"`
	}
	jwtRule struct {
		Claim         string `json:"claim"`
		RequiredValue string `json:"requiredValue"`
	}
	jwtMappings struct {
		Username jwtMapping  `json:"username"`
		Groups   *jwtMapping `json:"groups,omitempty"`
	}
	jwtMapping struct {
		Claim  string `json:"claim"`
		Prefix string `json:"prefix"`
	}
)

// authenticationFile returns the authentication configuration file of the hosted API server. authorities holds the
// issuers' certificate authorities by provider name. With egressProxy, the server connects to issuers with its egress selection. A configuration that the server would reject is an error: a
// running server would keep the previous configuration, but a new one would not start.
func authenticationFile(spec *configv1.AuthenticationSpec, serviceAccountIssuer string, authorities map[string]string, egressProxy bool) ([]byte, error) {
	file := authenticationConfiguration{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthenticationConfiguration", JWT: []jwtAuthenticator{}}
	if spec == nil {
		return json.Marshal(file)
	}
	for _, provider := range spec.OIDCProviders {
		jwt, err := authenticator(&provider, serviceAccountIssuer, authorities[provider.Name])
		if err != nil {
			return nil, fmt.Errorf("OIDC provider %s: %w", provider.Name, err)
		}
		if egressProxy {
			jwt.Issuer.EgressSelectorType = kubeapi.EgressSelectorControlPlane
		}
		file.JWT = append(file.JWT, *jwt)
	}
	return json.Marshal(file)
}

func authenticator(provider *configv1.OIDCProvider, serviceAccountIssuer, authority string) (*jwtAuthenticator, error) {
	issuer := jwtIssuer{URL: provider.Issuer.URL, AudienceMatchPolicy: "MatchAny", CertificateAuthority: authority}
	parsed, err := url.Parse(issuer.URL)
	switch {
	case err != nil, parsed.Scheme != "https", parsed.Host == "", parsed.User != nil, parsed.RawQuery != "", parsed.Fragment != "":
		return nil, fmt.Errorf("issuer URL %q is not an https URL without user, query and fragment", issuer.URL)
	case issuer.URL == serviceAccountIssuer:
		return nil, fmt.Errorf("issuer URL %q is the issuer of the cluster's own service accounts", issuer.URL)
	}
	if authority != "" {
		if certs, err := pki.ReadCertificates([]byte(authority)); err != nil || len(certs) == 0 {
			return nil, errors.New("the certificate authority of the issuer contains no valid certificate")
		}
	}
	for _, audience := range provider.Issuer.Audiences {
		if slices.Contains(issuer.Audiences, string(audience)) {
			return nil, fmt.Errorf("duplicate audience %q", audience)
		}
		issuer.Audiences = append(issuer.Audiences, string(audience))
	}
	name, err := username(provider)
	if err != nil {
		return nil, err
	}
	jwt := &jwtAuthenticator{Issuer: issuer, ClaimMappings: jwtMappings{Username: name}}
	if groups := provider.ClaimMappings.Groups; groups.Claim != "" {
		jwt.ClaimMappings.Groups = &jwtMapping{Claim: groups.Claim, Prefix: groups.Prefix}
	}
	for _, rule := range provider.ClaimValidationRules {
		if rule.Type != configv1.TokenValidationRuleTypeRequiredClaim || rule.RequiredClaim == nil {
			return nil, fmt.Errorf("claim validation rule of type %q: only %s with a requiredClaim is supported", rule.Type, configv1.TokenValidationRuleTypeRequiredClaim)
		}
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, jwtRule{rule.RequiredClaim.Claim, rule.RequiredClaim.RequiredValue})
	}
	return jwt, nil
}

// username returns the mapping of user names. If the platform chooses the prefix, it is the issuer's URL, except for
// e-mail addresses.
func username(provider *configv1.OIDCProvider) (jwtMapping, error) {
	mapping := jwtMapping{Claim: provider.ClaimMappings.Username.Claim}
	switch given := provider.ClaimMappings.Username; given.PrefixPolicy {
	case configv1.Prefix:
		if given.Prefix != nil {
			mapping.Prefix = given.Prefix.PrefixString
		}
	case configv1.NoPrefix:
	case configv1.NoOpinion:
		if mapping.Claim != "email" {
			mapping.Prefix = provider.Issuer.URL + "#"
		}
	default:
		return jwtMapping{}, fmt.Errorf("unknown prefixPolicy %q of the user name: supported values are %q, %q and %q", given.PrefixPolicy, configv1.Prefix, configv1.NoPrefix, configv1.NoOpinion)
	}
	return mapping, nil
}

// issuerAuthorities reads the ConfigMaps with the issuers' certificate authorities.
func (r *Reconciler) issuerAuthorities(ctx context.Context, namespace string, spec *configv1.AuthenticationSpec) (map[string]string, error) {
	authorities := map[string]string{}
	for _, provider := range spec.OIDCProviders {
		name := provider.Issuer.CertificateAuthority.Name
		if name == "" {
			continue
		}
		var configMap corev1.ConfigMap
		if err := r.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &configMap); err != nil {
			return nil, fmt.Errorf("failed to get issuer certificate authority %s: %w", name, err)
		}
		if configMap.Data[issuerCAKey] == "" {
			return nil, fmt.Errorf("expected %s key in issuer certificate authority %s", issuerCAKey, name)
		}
		authorities[provider.Name] = configMap.Data[issuerCAKey]
	}
	return authorities, nil
}

// authenticationOf returns the authentication configuration of the API server for the spec of a HostedCluster, or why it is invalid.
func (r *Reconciler) authenticationOf(ctx context.Context, hc *hyperv1.HostedCluster, serviceAccountIssuer string) (file []byte, invalid, err error) {
	spec := oidcSpec(hc.Spec.Configuration)
	var authorities map[string]string
	if spec != nil {
		if authorities, err = r.issuerAuthorities(ctx, hc.Namespace, spec); err != nil {
			return nil, nil, err
		}
	}
	file, invalid = authenticationFile(spec, serviceAccountIssuer, authorities, r.EgressProxy)
	return file, invalid, nil
}

// observeOIDCClients reports the components that sign users in with a client secret. In real clusters this is the
// console, whose operator reports it. No component reports a public client.
func (r *Reconciler) observeOIDCClients(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) error {
	spec := oidcSpec(hc.Spec.Configuration)
	var before []configv1.OIDCClientStatus
	if hcp.Status.Configuration != nil {
		before = hcp.Status.Configuration.Authentication.OIDCClients
	}
	usesSecret := false
	if spec != nil {
		for _, provider := range spec.OIDCProviders {
			for _, c := range provider.OIDCClients {
				if c.ClientSecret.Name == "" {
					continue
				}
				usesSecret = true
				has, known, err := r.clientHasSecret(ctx, hc, hcp, c.ClientSecret.Name, o)
				if err != nil {
					return err
				}
				o.OIDCClients = append(o.OIDCClients, clientStatus(&provider, &c, before, has, known, metav1.NewTime(o.Now)))
			}
		}
	}
	if !usesSecret && r.HostedSecrets != nil {
		r.HostedSecrets.Forget(hcp.Namespace)
	}
	return nil
}

// clientHasSecret reports whether a client's secret exists in the hosted cluster, where its owner creates it. In status
// fidelity, the secret of that name in the HostedCluster's namespace takes its place.
func (r *Reconciler) clientHasSecret(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, name string, o *observation) (has, known bool, err error) {
	fidelity, err := contract.FidelityOf(hcp)
	if err != nil {
		return false, false, err
	}
	if fidelity == contract.FidelityProcess {
		if o.Phase <= schedule.APIServerStarting || !o.Kubeconfig || r.HostedSecrets == nil {
			return false, false, nil
		}
		has, known = r.HostedSecrets.Has(ctx, hcp.Namespace, name, clientSecretKey)
		return has, known, nil
	}
	var secret corev1.Secret
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: name}, &secret); err != nil {
		return false, true, client.IgnoreNotFound(err)
	}
	return len(secret.Data[clientSecretKey]) > 0, true, nil
}

// clientStatus returns the status that a component's operator reports for its client.
func clientStatus(provider *configv1.OIDCProvider, c *configv1.OIDCClientConfig, before []configv1.OIDCClientStatus, has, known bool, now metav1.Time) configv1.OIDCClientStatus {
	status := configv1.OIDCClientStatus{ComponentName: c.ComponentName, ComponentNamespace: c.ComponentNamespace, ConsumingUsers: []configv1.ConsumingUser{},
		CurrentOIDCClients: []configv1.OIDCClientReference{{OIDCProviderName: provider.Name, IssuerURL: provider.Issuer.URL, ClientID: c.ClientID}}}
	i := slices.IndexFunc(before, func(s configv1.OIDCClientStatus) bool {
		return s.ComponentName == c.ComponentName && s.ComponentNamespace == c.ComponentNamespace
	})
	if i >= 0 {
		status.Conditions = slices.Clone(before[i].Conditions)
	}
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: now})
	}
	switch {
	case known && has:
		set("Degraded", metav1.ConditionFalse, reasonOIDCAvailable, "")
		set("Progressing", metav1.ConditionFalse, reasonOIDCAvailable, "")
		set("Available", metav1.ConditionTrue, reasonOIDCAvailable, "")
	case known:
		message := fmt.Sprintf("secret %q not found", c.ClientSecret.Name)
		set("Degraded", metav1.ConditionTrue, reasonOIDCSecretMissing, message)
		set("Progressing", metav1.ConditionFalse, reasonOIDCSecretMissing, message)
		if meta.FindStatusCondition(status.Conditions, "Available") == nil {
			set("Available", metav1.ConditionUnknown, reasonOIDCUnknown, "")
		}
	case i < 0:
		for _, kind := range []string{"Degraded", "Progressing", "Available"} {
			set(kind, metav1.ConditionUnknown, reasonOIDCUnknown, "")
		}
	}
	return status
}

// configurationStatus returns the status of the configuration; nil if there is nothing to report.
func configurationStatus(o *observation) *hyperv1.ConfigurationStatus {
	if len(o.OIDCClients) == 0 {
		return nil
	}
	return &hyperv1.ConfigurationStatus{Authentication: configv1.AuthenticationStatus{OIDCClients: o.OIDCClients}}
}
