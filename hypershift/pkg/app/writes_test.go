package app

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// writeCounter counts successful writes by method, resource and subresource.
type writeCounter struct {
	http.RoundTripper
	mu     sync.Mutex
	counts map[string]int
}

func (c *writeCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(request)
	if err != nil || request.Method == http.MethodGet || response.StatusCode >= http.StatusMultipleChoices {
		return response, err
	}
	segments := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if segments[0] == "apis" {
		segments = segments[1:] // the group
	}
	segments = segments[2:] // "api" or the group, and the version
	if len(segments) > 2 && segments[0] == "namespaces" {
		segments = segments[2:]
	}
	what := request.Method + " " + segments[0]
	if len(segments) > 2 {
		what += "/" + segments[2]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
	return response, nil
}

// reset forgets the writes.
func (c *writeCounter) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = map[string]int{}
	return counts
}

// TestCreationWrites: a creation in status fidelity makes these writes and no others. Each is encrypted, admitted and sent to all watches.
func TestCreationWrites(t *testing.T) {
	m := newManagementCluster(t)
	counter := &writeCounter{counts: map[string]int{}}
	m.config.Wrap(func(next http.RoundTripper) http.RoundTripper { counter.RoundTripper = next; return counter })
	m.startRuntime(t, m.options(t.TempDir(), nil))
	s := m.sample(t, "writes")
	counter.reset()
	s.create(t)
	eventually.Soon(t, "the last write is made", func() error {
		var hc hyperv1.HostedCluster
		err := m.client.Get(t.Context(), s.key(), &hc)
		if err == nil && hc.Annotations[contract.HasBeenAvailableAnnotation] == "" {
			err = fmt.Errorf("annotation %s is missing", contract.HasBeenAvailableAnnotation)
		}
		return err
	})
	counts := counter.reset()
	s.delete(t)
	want := map[string]int{
		"PATCH hostedclusters": 2, "PUT hostedclusters/status": 2,
		"POST namespaces": 1, "POST hostedcontrolplanes": 1, "PUT hostedcontrolplanes/status": 1,
		"POST secrets": 10, "PATCH secrets": 2, "POST configmaps": 3, "PATCH configmaps": 1,
		"POST controlplanecomponents": 3, "PATCH controlplanecomponents/status": 3,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("writes differ (-want +got):\n%s", cmp.Diff(want, counts))
	}
}
