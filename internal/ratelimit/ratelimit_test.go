package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

func TestTake(t *testing.T) {
	now := time.Unix(0, 0)
	buckets := New(Limit{Size: 2, PerSecond: 4}, func() time.Time { return now })
	for i, step := range []struct {
		reason    string
		wait      time.Duration
		key       string
		remaining int
		after     time.Duration
	}{
		{"a new bucket is full", 0, "a", 1, 0},
		{"a token was taken", 0, "a", 0, 0},
		{"an empty bucket returns the time until the next token", 0, "a", 0, 250 * time.Millisecond},
		{"the time decreases", 100 * time.Millisecond, "a", 0, 150 * time.Millisecond},
		{"each key has its own bucket", 0, "b", 1, 0},
		{"a token was refilled", 150 * time.Millisecond, "a", 0, 0},
		{"a refill is limited to the size of the bucket", time.Hour, "a", 1, 0},
	} {
		now = now.Add(step.wait)
		wait := buckets.Wait(step.key)
		remaining, after := buckets.Take(step.key)
		if wait != after {
			t.Errorf("step %d: %s: Wait returns %s, Take %s", i, step.reason, wait, after)
		}
		if remaining != step.remaining || (after-step.after).Abs() > time.Microsecond {
			t.Errorf("step %d: %s: %d tokens remain, next after %s", i, step.reason, remaining, after)
		}
	}
}

// TestKeysAreBounded invents keys: their number is limited, and the keys that are too many share a bucket. Those that are known keep
// their buckets, and full buckets make space.
func TestKeysAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	buckets := New(Limit{Size: 2, PerSecond: 1}, func() time.Time { return now })
	for n := range maxKeys {
		buckets.Take(fmt.Sprint(n))
	}
	refused := 0
	for n := range 100 {
		if _, after := buckets.Take(fmt.Sprint("other", n)); after > 0 {
			refused++
		}
	}
	if refused != 98 || len(buckets.buckets) != maxKeys {
		t.Errorf("%d of 100 invented keys are refused, %d buckets", refused, len(buckets.buckets))
	}
	if _, after := buckets.Take("7"); after != 0 {
		t.Error("a known key is refused")
	}
	now = now.Add(time.Second)
	if _, after := buckets.Take("new"); after != 0 || len(buckets.buckets) != 2 {
		t.Errorf("full buckets are not removed: %d buckets, next token after %s", len(buckets.buckets), after)
	}
}

func TestPeer(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@", "host:80": "host",
	} {
		if got := Peer(remote); got != want {
			t.Errorf("Peer(%s) = %s, want %s", remote, got, want)
		}
	}
}
