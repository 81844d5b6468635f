package frontdoor_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"
)

func TestBuckets(t *testing.T) {
	now := time.Unix(0, 0)
	limits := must.Get(frontdoor.ParseRateLimits("reads=2:4"))(t)
	buckets := frontdoor.NewRateBuckets(limits, func() time.Time { return now })
	for i, step := range []struct {
		reason       string
		wait         time.Duration
		subscription string
		kind         frontdoor.RateKind
		remaining    int
		after        time.Duration
	}{
		{"a new bucket is full", 0, "a", frontdoor.Reads, 1, 0},
		{"the ID of a subscription ignores case", 0, "A", frontdoor.Reads, 0, 0},
		{"an empty bucket returns the time until the next token", 0, "a", frontdoor.Reads, 0, 250 * time.Millisecond},
		{"the time decreases", 100 * time.Millisecond, "a", frontdoor.Reads, 0, 150 * time.Millisecond},
		{"each subscription has its own buckets", 0, "b", frontdoor.Reads, 1, 0},
		{"each kind has its own bucket", 0, "a", frontdoor.Writes, frontdoor.DefaultRateLimits()[frontdoor.Writes].Size - 1, 0},
		{"a token was refilled", 150 * time.Millisecond, "a", frontdoor.Reads, 0, 0},
		{"a refill is limited to the size of the bucket", time.Hour, "a", frontdoor.Reads, 1, 0},
	} {
		now = now.Add(step.wait)
		remaining, after := buckets.Acquire(step.subscription, step.kind)
		if remaining != step.remaining || (after-step.after).Abs() > time.Microsecond {
			t.Errorf("step %d: %s: %d tokens remain, next after %s", i, step.reason, remaining, after)
		}
	}
}

func TestParse(t *testing.T) {
	for _, invalid := range []string{"reads", "reads=1", "reads=0:1", "reads=1:0", "reads=1:NaN", "reads=1:Inf", "lists=1:1", "reads=x:1", ","} {
		if _, err := frontdoor.ParseRateLimits(invalid); err == nil {
			t.Errorf("Parse accepted %q", invalid)
		}
	}
	limits, err := frontdoor.ParseRateLimits("deletes=200:10, reads=250:25")
	if err != nil || limits[frontdoor.Deletes] != (frontdoor.RateLimit{Size: 200, PerSecond: 10}) || limits[frontdoor.Writes] != frontdoor.DefaultRateLimits()[frontdoor.Writes] {
		t.Errorf("%v, %v", limits, err)
	}
}

func TestKindOf(t *testing.T) {
	for method, want := range map[string]frontdoor.RateKind{
		http.MethodGet: frontdoor.Reads, http.MethodHead: frontdoor.Reads, http.MethodPut: frontdoor.Writes, http.MethodPatch: frontdoor.Writes,
		http.MethodPost: frontdoor.Writes, http.MethodDelete: frontdoor.Deletes, "BREW": frontdoor.Writes,
	} {
		if got := frontdoor.RateKindOf(method); got != want {
			t.Errorf("KindOf(%s) = %s, want %s", method, got, want)
		}
	}
}
