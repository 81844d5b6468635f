package throttle_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/throttle"
)

func TestBuckets(t *testing.T) {
	now := time.Unix(0, 0)
	limits, err := throttle.Parse("reads=2:4")
	if err != nil {
		t.Fatal(err)
	}
	buckets := throttle.New(limits, func() time.Time { return now })
	for i, step := range []struct {
		reason       string
		wait         time.Duration
		subscription string
		kind         throttle.Kind
		left         int
		after        time.Duration
	}{
		{"a bucket begins full", 0, "a", throttle.Reads, 1, 0},
		{"and ends empty, whatever the casing", 0, "A", throttle.Reads, 0, 0},
		{"then it says when to come back", 0, "a", throttle.Reads, 0, 250 * time.Millisecond},
		{"which it still does a moment later", 100 * time.Millisecond, "a", throttle.Reads, 0, 150 * time.Millisecond},
		{"other subscriptions have their own", 0, "b", throttle.Reads, 1, 0},
		{"and other kinds", 0, "a", throttle.Writes, throttle.Default()[throttle.Writes].Size - 1, 0},
		{"a token has come back", 150 * time.Millisecond, "a", throttle.Reads, 0, 0},
		{"no more than the bucket holds come back", time.Hour, "a", throttle.Reads, 1, 0},
	} {
		now = now.Add(step.wait)
		left, after := buckets.Take(step.subscription, step.kind)
		if left != step.left || (after-step.after).Abs() > time.Microsecond {
			t.Errorf("%d: %s: %d left, or after %s", i, step.reason, left, after)
		}
	}
}

func TestParse(t *testing.T) {
	for _, wrong := range []string{"reads", "reads=1", "reads=0:1", "reads=1:0", "reads=1:NaN", "reads=1:Inf", "things=1:1", "reads=x:1", ","} {
		if _, err := throttle.Parse(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
	limits, err := throttle.Parse("deletes=200:10, reads=250:25")
	if err != nil || limits[throttle.Deletes] != (throttle.Limit{Size: 200, PerSecond: 10}) || limits[throttle.Writes] != throttle.Default()[throttle.Writes] {
		t.Errorf("%v, %v", limits, err)
	}
}

func TestKindOf(t *testing.T) {
	for method, want := range map[string]throttle.Kind{
		http.MethodGet: throttle.Reads, http.MethodHead: throttle.Reads, http.MethodPut: throttle.Writes, http.MethodPatch: throttle.Writes,
		http.MethodPost: throttle.Writes, http.MethodDelete: throttle.Deletes, "BREW": throttle.Writes,
	} {
		if got := throttle.KindOf(method); got != want {
			t.Errorf("%s is counted as %s", method, got)
		}
	}
}
