package pass

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// TestSecondPassIsMadeDespiteRequests requests passes between the first one with a new key and the second one, as the follower of the
// keyset does when it notices the key later than the pass.
func TestSecondPassIsMadeDespiteRequests(t *testing.T) {
	keys, err := seal.New()
	if err != nil {
		t.Fatal(err)
	}
	const again = 10 * time.Minute
	r := NewResealer(nil, keys, again, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	start := time.Now()
	for _, step := range []struct {
		after, pause time.Duration
		passes       float64
	}{
		{0, again, 1},
		{time.Second, again - time.Second, 1},
		{again, idle, 2},
		{again + time.Minute, idle, 2},
	} {
		if got := r.confirm(keys.Primary(), start.Add(step.after)); got != step.pause {
			t.Errorf("after %s: the next pass is in %s, want %s", step.after, got, step.pause)
		}
		if got := testutil.ToFloat64(r.passes.WithLabelValues(strconv.FormatUint(uint64(keys.Primary()), 10))); got != step.passes {
			t.Errorf("after %s: %v passes are confirmed, want %v", step.after, got, step.passes)
		}
	}
	if got := r.confirm(keys.Primary()+1, start.Add(again+time.Hour)); got != 0 {
		t.Errorf("a pass with another key than the current one: the next pass is in %s", got)
	}
}
