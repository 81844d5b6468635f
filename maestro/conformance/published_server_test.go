//go:build nightly

package conformance

import (
	"io"
	"os"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

// published returns the program of the published Maestro.
func published(t testing.TB) string {
	t.Helper()
	return nightly.Program(t, "maestro", "bin/maestro")
}

func (r *region) startPublishedServer() *maestrotest.Server {
	var log io.Writer
	if os.Getenv("MAESTRO_TEST_LOG") != "" {
		log = r.t.Output()
	}
	return r.StartPublishedServer(published(r.t), log)
}

// TestPublishedServer: our agent works with the published server.
func TestPublishedServer(t *testing.T) {
	r := newRegion(t)
	s := r.startPublishedServer()
	consumer := r.newConsumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()

	works := make([]bundle, 20)
	for i := range works {
		works[i] = newBundle(consumer, "one")
		cs.must("create", works[i])
	}
	for _, b := range works {
		cs.untilFedBack(b.ID, 1, "one")
		cs.must("update", b.with("two"))
	}
	for _, b := range works {
		cs.untilFedBack(b.ID, 2, "two")
		cs.must("delete", b)
	}
	for _, b := range works {
		cs.untilDeleted(b.ID)
		r.untilGone(b.configMapName())
	}
}
