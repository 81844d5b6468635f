package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
)

// BenchmarkAudit measures what auditing adds to a change and to a sensitive read; see audittest.Stopwatch.
func BenchmarkAudit(b *testing.B) {
	h := newHarness(b)
	h.populate(b)
	h.elevate(b)
	watch := audittest.NewStopwatch(h.trail)
	config := h.config
	config.Audit, config.Metrics = watch, newRegistry()
	handler := server.New(config)
	for name, request := range map[string]struct {
		engineer, method, path, body string
		want                         int
	}{
		"change": {"operator", http.MethodPost, "/clusters/" + uid + "/pause", `{"duration":"1h"}`, http.StatusAccepted},
		"dump":   {"reader", http.MethodGet, "/clusters/" + uid + "/dump", "", http.StatusOK},
	} {
		b.Run(name, func(b *testing.B) {
			watch.Measure(b, func() time.Duration {
				begin := time.Now()
				if got := ask(handler, request.engineer, "", request.method, request.path, request.body); got.Code != request.want {
					b.Fatalf("%d %s", got.Code, got.Body)
				}
				return time.Since(begin)
			})
		})
	}
}
