// Package contract runs the artifact cases of the frontend and of admin against a whole region: the real frontend, admin, backend,
// Cluster Service, Maestro and Cosmos DB's emulator, with control planes that are none, so that hundreds of clusters come and
// go. What holds against the fakes of either's own tests must hold here too.
package contract

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/v20260901preview"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// every says how much of the suite runs: the cases in which something is accepted cost the region a cluster or more each.
var every = flag.Int("every", 6, "run every `n`th of the cases in which something is accepted, and all others; `make contract` runs all")

// pause is how long a step that waits leaves the region alone.
const pause = 100 * time.Millisecond

// patience is how long the region has for what it does after it has answered, on a machine that is busy with other things.
const patience = 2 * time.Minute

// TestCases runs the cases, each in a subscription of its own. What a case has made must come to an end, and is deleted then; and
// nothing that the frontend has accepted may be refused by a management cluster.
func TestCases(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the whole region; run without -short")
	}
	region := start(t)
	endpoints := region.Endpoints()
	identity, err := mesh.LoadIdentity(endpoints.Identities["arm-frontdoor"])
	if err != nil {
		t.Fatal(err)
	}
	suite := httpcase.Suite{Dir: "../../frontend/testdata"}
	cases, err := suite.Load()
	if err != nil {
		t.Fatal(err)
	}
	someone, err := customer.New(t.Context(), endpoints, "11111111-0000-0000-0000-00000000000c", "contract")
	if err != nil {
		t.Fatal(err)
	}
	token, err := someone.ARMToken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: 16}
	target := httpcase.Target{
		BaseURL:       "https://" + endpoints.Frontend,
		Client:        &http.Client{Transport: bearer{transport, token}},
		Location:      endpoints.Location,
		APIVersion:    v20260901preview.Version,
		Timeout:       patience,
		RetryInterval: pause,
		CleanUp:       true,
		AllowedFailures: map[string]string{
			"cluster-choices": "the local region has no private API endpoints",
		},
	}
	// After the last case.
	t.Cleanup(func() { nothingRefused(t, region) })
	for _, c := range selected(cases, *every) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := suite.Run(t.Context(), target, c); err != nil {
				t.Errorf("%s: %v", c.Reason, err)
			}
		})
	}
}

// selected are the cases in which nothing is accepted, and every nth of the others. The frontend's own tests run them all.
func selected(cases []httpcase.Case, n int) []httpcase.Case {
	var chosen []httpcase.Case
	accepting := 0
	for _, c := range cases {
		if c.ExpectsAcceptance() {
			accepting++
			if accepting%max(n, 1) != 0 {
				continue
			}
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// bearer sends ARM's token along.
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

// nothingRefused: an agent that cannot apply a manifest tries for ever, and its cluster never comes up. The rules of the
// frontend must not let through what HyperShift's do not.
func nothingRefused(t *testing.T, region *local.Region) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(region.LogDir(), "*-maestro-agent.log"))
	if err != nil || len(logs) == 0 {
		t.Errorf("there are no logs of agents: %v", err)
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
				t.Errorf("%s: what was accepted is refused: %s", filepath.Base(path), entry.Error)
			}
		}
	}
}
