// Package contract runs the artifact cases of the frontend and of admin against a whole region. Control planes have status
// fidelity, so that hundreds of clusters can be created. What holds in the services' own tests must hold here too.
package contract

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// every reduces the suite: the frontend's own tests run all cases, and each case with an accepted request costs at least one cluster.
var every = nightly.Choose(40, 1)

// pause is the polling interval of steps that wait.
const pause = 100 * time.Millisecond

// TestCases runs the frontend's cases, each in its own subscription. The operations of a case must become terminal; then its
// resources are deleted. No management cluster may reject what the frontend has accepted.
func TestCases(t *testing.T) {
	region := start(t)
	endpoints := region.Endpoints()
	identity := must.Get(mesh.LoadIdentity(endpoints.Identities["arm-frontdoor"]))(t)
	suite := httpcase.Suite{Dir: "../../frontend/testdata"}
	cases := must.Get(suite.Load())(t)
	someone := must.Get(customer.New(t.Context(), endpoints, "11111111-0000-0000-0000-00000000000c", "contract"))(t)
	token := must.Get(someone.ARMToken(t.Context()))(t)
	transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: 16}
	target := httpcase.Target{
		BaseURL:       "https://" + endpoints.Frontend,
		Client:        &http.Client{Transport: bearer{transport, token}},
		Location:      endpoints.Location,
		APIVersion:    version.Newest().Name,
		RetryInterval: pause,
		CleanUp:       true,
	}
	// After the last case.
	t.Cleanup(func() { requireNoRejectedManifests(t, region) })
	for i, c := range cases {
		if i%every != 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := suite.Run(t.Context(), target, c); err != nil {
				t.Errorf("%s: %v", c.Reason, err)
			}
		})
	}
}

// bearer adds ARM's token to requests.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// requireNoRejectedManifests searches the logs of the agents for rejected manifests. An agent retries such a manifest forever and
// the cluster never becomes available, so the frontend's rules must cover those of HyperShift.
func requireNoRejectedManifests(t *testing.T, region *local.Region) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(region.LogDir(), "*-maestro-agent.log"))
	if err != nil || len(logs) == 0 {
		t.Errorf("no logs of agents: %v", err)
	}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		seen := map[string]bool{}
		for line := range strings.SplitSeq(string(content), "\n") {
			var entry struct{ Error string }
			if json.Unmarshal([]byte(line), &entry) != nil || seen[entry.Error] {
				continue
			}
			seen[entry.Error] = true
			if strings.Contains(entry.Error, " is invalid: ") || strings.Contains(entry.Error, "failed to create typed patch object") {
				t.Errorf("%s: a manifest of an accepted request was rejected: %s", filepath.Base(path), entry.Error)
			}
		}
	}
}
