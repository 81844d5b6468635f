package conformance

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestServersRegisterConfiguredConsumers starts servers with a list of consumers on an empty database at the same time. They accept works for
// them as soon as they are ready. A server with a shorter list deletes none.
func TestServersRegisterConfiguredConsumers(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	consumers := []string{unique("mgmt"), unique("mgmt")}
	r.Tune = func(c *app.Config) { c.Consumers = consumers }
	var starting sync.WaitGroup
	servers := make([]*maestrotest.Server, 2)
	for i := range servers {
		servers[i] = r.StartServerUnready()
		starting.Go(func() { r.AwaitReady(servers[i]) })
	}
	starting.Wait()
	for _, s := range servers {
		cs := r.source(s, "cluster-service")
		for _, consumer := range consumers {
			cs.must("create", newBundle(consumer, "x"))
		}
		s.Stop()
	}

	removed := consumers[0]
	r.Tune = func(c *app.Config) { c.Consumers = consumers[1:] }
	var list struct{ Items []struct{ Name string } }
	if status := r.Call(r.StartServer(), http.MethodGet, "/consumers", nil, &list); status != http.StatusOK {
		t.Fatalf("listing consumers: status %d", status)
	}
	if len(list.Items) != len(consumers) || !slices.ContainsFunc(list.Items, func(c struct{ Name string }) bool { return c.Name == removed }) {
		t.Errorf("the consumers are %v, want %v", list.Items, consumers)
	}
}
