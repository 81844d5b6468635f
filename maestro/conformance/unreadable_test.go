package conformance

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hcpmesh/hcpmesh/maestro/agent"
)

// refusingTransport answers the next reads of an object with 403, as an API server does that has just started and does not have its roles
// yet.
type refusingTransport struct {
	http.RoundTripper
	path   string
	refuse *atomic.Int64
}

func (r refusingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, r.path) && r.refuse.Add(-1) >= 0 {
		request = request.Clone(request.Context())
		request.Header.Set("Impersonate-User", "nobody")
	}
	return r.RoundTripper.RoundTrip(request)
}

// TestUnreadableObjectIsNotForgotten is a regression test. While a work was deleted, the agent could not read one of its objects, removed
// the object from its list, and reported the work as deleted although the object existed.
func TestUnreadableObjectIsNotForgotten(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	consumer := r.consumer(server)
	b := newBundle(consumer, "x")
	var refuse atomic.Int64
	config := cluster(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refusingTransport{next, "/configmaps/" + b.configMapName(), &refuse}
	})
	r.StartAgent(consumer, agent.Options{Cluster: config})
	cs := r.source(server, "cluster-service")
	cs.subscribe()
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)

	refuse.Store(3)
	cs.must("delete", b)
	cs.untilDeleted(b.ID)
	if _, err := r.configMap(b.configMapName()); !apierrors.IsNotFound(err) {
		t.Errorf("the work is reported as deleted, and its ConfigMap exists: %v", err)
	}
	if left := refuse.Load(); left > 0 {
		t.Errorf("the agent stopped reading after %d refusals", 3-left)
	}
}
