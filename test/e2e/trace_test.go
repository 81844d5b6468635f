package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

// requireTrace checks that hcpctl shows the trace of the creation of a resource with spans of each service, and with the waits for conditions of its object
// of a kind on the management cluster.
func requireTrace(t *testing.T, ctx context.Context, id, kind string, conditions ...string) {
	t.Helper()
	needsRegion(t)
	want := [][2]string{{"frontend", "PUT "}, {"backend", "operation Create"}, {"cluster-service", "publish apply"}, {"maestro-server", "store create"},
		{"maestro-server", "send"}, {"maestro-agent", "apply"}}
	for _, condition := range conditions {
		want = append(want, [2]string{"cluster-service", "await " + kind + " " + condition})
	}
	d := &scenario{t: t, ctx: ctx}
	eventually.Before(ctx, t, "hcpctl shows the trace of the creation of "+id, func() error {
		out, err := d.tryHcpctl("trace", id, "-o", "json")
		if err != nil {
			return err
		}
		var answer spans.Answer
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			return err
		}
		all := answer.Traces[0].Spans
		for _, span := range want {
			if !slices.ContainsFunc(all, func(s *spans.Span) bool {
				return strings.HasSuffix(s.Service, span[0]) && strings.HasPrefix(s.Name, span[1]) && s.Duration() >= 0
			}) {
				return fmt.Errorf("no span %q of %s in:\n%s", span[1], span[0], out)
			}
		}
		return nil
	})
}
