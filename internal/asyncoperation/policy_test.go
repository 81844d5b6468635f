package asyncoperation

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestParseURI(t *testing.T) {
	for name, c := range map[string]struct {
		reason, uri             string
		allowed, allowedLocally bool
	}{
		"the host":             {"it is ARM's", "https://management.azure.com/a?b=c", true, true},
		"a subdomain":          {"regions have hosts of their own", "https://westus3.management.azure.com:443/a", true, true},
		"another casing":       {"host names ignore case", "HTTPS://WestUS3.Management.Azure.COM/a", true, true},
		"http":                 {"it is not encrypted", "http://management.azure.com/a", false, false},
		"another port":         {"another program may listen there", "https://management.azure.com:8443/a", false, false},
		"another host":         {"not ARM's", "https://example.com/a", false, false},
		"a common suffix":      {"not a subdomain", "https://evilmanagement.azure.com/a", false, false},
		"a common prefix":      {"not a subdomain", "https://management.azure.com.evil.example/a", false, false},
		"user information":     {"it hides the host", "https://management.azure.com@evil.example/a", false, false},
		"user of ARM":          {"no credentials are sent", "https://user:pass@management.azure.com/a", false, false},
		"a fragment":           {"it is never sent", "https://management.azure.com/a#b", false, false},
		"an address":           {"not a name", "https://20.1.2.3/a", false, false},
		"metadata":             {"it issues tokens", "http://169.254.169.254/metadata/identity", false, false},
		"a trailing dot":       {"resolvers treat it differently", "https://management.azure.com./a", false, false},
		"a file URI":           {"not HTTP", "file:///etc/passwd", false, false},
		"opaque":               {"no host", "https:management.azure.com", false, false},
		"relative":             {"no host", "//management.azure.com/a", false, false},
		"empty":                {"not a URI", "", false, false},
		"control characters":   {"not a URI", "https://management.azure.com/\r\nHost: x", false, false},
		"long":                 {"longer than the limit", "https://management.azure.com/" + strings.Repeat("a", 2048), false, false},
		"loopback":             {"for local regions", "http://127.0.0.1:8080/a", false, true},
		"loopback of IPv6":     {"for local regions", "http://[::1]:8080/a", false, true},
		"loopback by name":     {"for local regions", "https://localhost:8080/a", false, true},
		"another machine":      {"not this one", "http://10.0.0.1:8080/a", false, false},
		"loopback, misspelt":   {"Go does not parse it as an address", "http://0177.0.0.1/a", false, false},
		"loopback as a number": {"Go does not parse it as an address", "http://2130706433/a", false, false},
		"unspecified":          {"some systems connect to themselves", "http://0.0.0.0/a", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := Policy{Hosts: []string{"management.azure.com"}}
			if _, err := policy.ParseURI(c.uri); (err == nil) != c.allowed {
				t.Errorf("%s: allowed %v, %v: %s", c.uri, err == nil, err, c.reason)
			}
			policy.Loopback = true
			if _, err := policy.ParseURI(c.uri); (err == nil) != c.allowedLocally {
				t.Errorf("%s in a local region: allowed %v, %v: %s", c.uri, err == nil, err, c.reason)
			}
			if _, err := new(Policy).ParseURI(c.uri); err == nil {
				t.Errorf("%s: allowed by the zero policy", c.uri)
			}
		})
	}
}

// TestClientRejectsPrivateAddresses checks the address that a name resolves to, which the owner of the name chooses.
func TestClientRejectsPrivateAddresses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer server.Close()
	policy := Policy{Hosts: []string{"example.com"}}
	if response, err := policy.Client().Get(server.URL); err == nil {
		_ = response.Body.Close()
		t.Error("connected to a server on this machine")
	}
	policy.Loopback = true
	response := must.Get(policy.Client().Get(server.URL))(t)
	_ = response.Body.Close()
}

func TestClientFollowsNoRedirect(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	policy := Policy{Loopback: true}
	response := must.Get(policy.Client().Post(server.URL, "application/json", strings.NewReader("{}")))(t)
	_ = response.Body.Close()
	if reached || response.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %d, redirect followed: %v", response.StatusCode, reached)
	}
}

func TestNewStatus(t *testing.T) {
	operation := &database.OperationDocument{
		OperationID: "op", ResourceID: "/subscriptions/S/resourceGroups/r/providers/P.N/t/x", Location: "westus3", Status: hub.Failed,
		Error: &database.OperationError{Code: "Conflict", Message: "No.", Details: []database.OperationError{{Code: "Inner", Target: "a"}}},
	}
	want := Status{
		ID: "/subscriptions/S/providers/Microsoft.RedHatOpenShift/locations/westus3/hcpOperationStatuses/op", Name: "op", Status: "Failed",
		Error: &Error{Code: "Conflict", Message: "No.", Details: []Error{{Code: "Inner", Target: "a"}}},
	}
	if diff := cmp.Diff(want, NewStatus(operation)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzParseURI checks that an allowed URI is https to one of the hosts, or with Loopback http or https to this machine.
func FuzzParseURI(f *testing.F) {
	for _, seed := range []string{
		"https://westus3.management.azure.com:443/a?b", "http://127.0.0.1:80/", "https://a@management.azure.com", "https://[::1]:1/", "//x", "https://management.azure.com%2eevil.example/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		policy := Policy{Hosts: []string{"management.azure.com"}}
		if u, err := policy.ParseURI(text); err == nil {
			host := strings.ToLower(u.Hostname())
			if u.Scheme != "https" || host != "management.azure.com" && !strings.HasSuffix(host, ".management.azure.com") || u.User != nil {
				t.Errorf("%q is allowed", text)
			}
		}
		policy = Policy{Loopback: true}
		if u, err := policy.ParseURI(text); err == nil && !isLoopback(strings.ToLower(u.Hostname())) {
			t.Errorf("%q is allowed in a local region", text)
		}
	})
}
