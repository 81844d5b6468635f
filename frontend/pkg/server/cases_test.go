package server_test

import (
	"flag"
	"net/http"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// These flags run the cases against a frontend of another process, in place of its front door.
var (
	baseURL     = flag.String("base-url", "", "`URL` of a frontend to run the cases against; empty runs one in the test")
	identityDir = flag.String("identity-dir", "", "`folder` with the identity of arm-frontdoor, for --base-url")
	armToken    = flag.String("token", "", "bearer `token` of ARM for the frontend at --base-url")
	atLocation  = flag.String("location", location, "`region` that the frontend at --base-url serves")
)

// TestCases runs every case of testdata/cases.
func TestCases(t *testing.T) {
	suite := httpcase.Suite{Dir: "../../testdata"}
	cases := must.Get(suite.Load())(t)
	target := target(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := suite.Run(t.Context(), target, c); err != nil {
				t.Errorf("%s: %v", c.Reason, err)
			}
		})
	}
}

func target(t *testing.T) httpcase.Target {
	t.Helper()
	if *baseURL == "" {
		h := newHarness(t)
		return httpcase.Target{BaseURL: h.url, Client: h.client, Location: location, APIVersion: newestVersion, ProcessOperations: h.finishOperationsOf}
	}
	transport := &http.Transport{}
	client := &http.Client{Transport: bearer{transport, *armToken}}
	if *identityDir != "" {
		identity := must.Get(mesh.LoadIdentity(*identityDir))(t)
		transport.TLSClientConfig = identity.ClientTLS(mesh.Frontend)
	}
	return httpcase.Target{BaseURL: *baseURL, Client: client, Location: *atLocation, APIVersion: newestVersion}
}

// bearer adds a token to requests.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}
