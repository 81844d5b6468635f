package hostedcluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
)

func provider(change func(*configv1.OIDCProvider)) *configv1.AuthenticationSpec {
	p := configv1.OIDCProvider{Name: "entra", Issuer: configv1.TokenIssuer{URL: "https://login.example.com/t", Audiences: []configv1.TokenAudience{"a"}},
		ClaimMappings: configv1.TokenClaimMappings{Username: configv1.UsernameClaimMapping{Claim: "sub"}}}
	change(&p)
	return &configv1.AuthenticationSpec{Type: configv1.AuthenticationTypeOIDC, OIDCProviders: []configv1.OIDCProvider{p}}
}

func TestAuthenticationFile(t *testing.T) {
	root, err := pki.NewAuthority("issuer", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	plain := jwtAuthenticator{Issuer: jwtIssuer{URL: "https://login.example.com/t", Audiences: []string{"a"}, AudienceMatchPolicy: "MatchAny"},
		ClaimMappings: jwtMappings{Username: jwtMapping{Claim: "sub", Prefix: "https://login.example.com/t#"}}}
	with := func(change func(*jwtAuthenticator)) []jwtAuthenticator {
		jwt := plain
		change(&jwt)
		return []jwtAuthenticator{jwt}
	}
	tests := map[string]struct {
		reason string
		spec   *configv1.AuthenticationSpec
		ca     string
		want   []jwtAuthenticator
		fails  bool
		egress bool
	}{
		"None":   {"a cluster without external authentication accepts only its own tokens", nil, "", []jwtAuthenticator{}, false, false},
		"Plain":  {"the platform's prefix is the issuer's URL", provider(func(*configv1.OIDCProvider) {}), "", []jwtAuthenticator{plain}, false, false},
		"E-mail": {"e-mail addresses have no prefix", provider(func(p *configv1.OIDCProvider) { p.ClaimMappings.Username.Claim = "email" }), "", with(func(j *jwtAuthenticator) { j.ClaimMappings.Username = jwtMapping{Claim: "email"} }), false, false},
		"Everything": {"all fields are copied", provider(func(p *configv1.OIDCProvider) {
			p.Issuer.CertificateAuthority.Name = "ca"
			p.ClaimMappings.Username.PrefixPolicy, p.ClaimMappings.Username.Prefix = configv1.Prefix, &configv1.UsernamePrefix{PrefixString: "x:"}
			p.ClaimMappings.Groups.Claim, p.ClaimMappings.Groups.Prefix = "groups", "g:"
			p.ClaimValidationRules = []configv1.TokenClaimValidationRule{{Type: configv1.TokenValidationRuleTypeRequiredClaim,
				RequiredClaim: &configv1.TokenRequiredClaim{Claim: "tid", RequiredValue: "1"}}}
		}), string(root.Cert), with(func(j *jwtAuthenticator) {
			j.Issuer.CertificateAuthority = string(root.Cert)
			j.ClaimMappings = jwtMappings{Username: jwtMapping{"sub", "x:"}, Groups: &jwtMapping{"groups", "g:"}}
			j.ClaimValidationRules = []jwtRule{{"tid", "1"}}
		}), false, false},
		"Egress":        {"the server connects to the issuer through the proxy", provider(func(*configv1.OIDCProvider) {}), "", with(func(j *jwtAuthenticator) { j.Issuer.EgressSelectorType = "controlplane" }), false, true},
		"OwnIssuer":     {"the API server would not start", provider(func(p *configv1.OIDCProvider) { p.Issuer.URL = "https://own.example.com" }), "", nil, true, false},
		"Query":         {"the API server would not start", provider(func(p *configv1.OIDCProvider) { p.Issuer.URL += "?x=1" }), "", nil, true, false},
		"NoCertificate": {"the API server would not start", provider(func(*configv1.OIDCProvider) {}), "x", nil, true, false},
		"UnknownPolicy": {"an unknown value is an error", provider(func(p *configv1.OIDCProvider) { p.ClaimMappings.Username.PrefixPolicy = "Guess" }), "", nil, true, false},
		"UnknownRule": {"an unknown value is an error", provider(func(p *configv1.OIDCProvider) {
			p.ClaimValidationRules = []configv1.TokenClaimValidationRule{{Type: "Guess"}}
		}), "", nil, true, false},
		"AudienceTwice": {"the API server would not start", provider(func(p *configv1.OIDCProvider) { p.Issuer.Audiences = append(p.Issuer.Audiences, "a") }), "", nil, true, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := authenticationFile(tc.spec, "https://own.example.com", map[string]string{"entra": tc.ca}, tc.egress)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v: %s", err, tc.reason)
			}
			if err != nil {
				return
			}
			var file authenticationConfiguration
			if err := json.Unmarshal(text, &file); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, file.JWT); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
