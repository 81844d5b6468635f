package validation_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// TestLoopbackIssuers checks that only a local region accepts issuers on its own machine, and no other address that is not public.
func TestLoopbackIssuers(t *testing.T) {
	for url, want := range map[string]struct{ local, deployed bool }{
		"https://127.0.0.1:18400/tenant/v2.0": {true, false},
		"https://127.0.0.1":                   {true, false},
		"https://127.0.0.2":                   {false, false},
		"https://localhost:18400":             {false, false},
		"https://[::1]:18400":                 {false, false},
		"https://10.0.0.1":                    {false, false},
		"https://login.example.com":           {true, true},
		"https://login.example.com:18400":     {false, false},
	} {
		auth := validExternalAuth()
		auth.Properties.Issuer.URL = url
		change := validation.ExternalAuthChange{New: auth, Cluster: validCluster(), Subscription: &hub.Subscription{}}
		if found := rules(t).ExternalAuth(change); (len(found) == 0) != want.deployed {
			t.Errorf("%s: %v", url, found)
		}
		if found := rules(t).AllowLoopbackIssuers().ExternalAuth(change); (len(found) == 0) != want.local {
			t.Errorf("%s in a local region: %v", url, found)
		}
	}
}

// TestIssuerOfCluster: a cluster cannot trust the tokens of its own service accounts as those of people. Its API server would not start.
func TestIssuerOfCluster(t *testing.T) {
	auth := validExternalAuth()
	found := func(issuer string) []apierror.Violation {
		return rules(t).ExternalAuth(validation.ExternalAuthChange{New: auth, Cluster: validCluster(), ClusterIssuer: issuer, Subscription: &hub.Subscription{}})
	}
	violations := found(auth.Properties.Issuer.URL)
	if len(violations) != 1 || violations[0].Field != "properties.issuer.url" {
		t.Errorf("the issuer of the cluster: %v", violations)
	}
	documented(t, book(t), violations)
	for _, other := range []string{"", auth.Properties.Issuer.URL + "/"} {
		if violations := found(other); len(violations) > 0 {
			t.Errorf("another issuer than %q: %v", other, violations)
		}
	}
}
