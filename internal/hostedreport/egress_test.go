package hostedreport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var now = time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC)

func TestEgressFailuresAreNotedAndCleared(t *testing.T) {
	r := EgressReport{}
	if !r.Note("Login.example.com:443", EgressAddress, now) || r.Note("login.example.com:443", EgressAddress, now.Add(Again-time.Second)) {
		t.Error("a failure is reported once, whatever the case of its name")
	}
	if !r.Note("login.example.com:443", EgressAddress, now.Add(Again)) || !r["login.example.com:443"].First.Equal(now.Truncate(time.Second)) {
		t.Errorf("after an hour it is reported again with its first time: %v", r)
	}
	if !r.Note("login.example.com:443", EgressUnreachable, now.Add(Again)) {
		t.Error("another outcome is reported")
	}
	text := must.Get(r.Encode())(t)
	if diff := cmp.Diff(r, DecodeEgress(text)); diff != "" {
		t.Errorf("decoded report (-want +got):\n%s", diff)
	}
	if !r.Clear("LOGIN.example.com:443") || r.Clear("login.example.com:443") || len(r) != 0 {
		t.Errorf("a cleared target is removed once: %v", r)
	}
	for reason, f := range map[string]EgressFailure{
		"no target": {"", EgressPort, now, now}, "an unknown outcome": {"a:443", "guess", now, now}, "a long target": {strings.Repeat("a", maxTarget+1), EgressPort, now, now},
		"a control character": {"a\n:443", EgressPort, now, now}, "an end before the beginning": {"a:443", EgressPort, now, now.Add(-time.Hour)}, "no time": {Target: "a:443", Outcome: EgressPort},
	} {
		if r.add(f) {
			t.Errorf("%s is accepted", reason)
		}
	}
}

func TestEgressFailuresAreForgotten(t *testing.T) {
	r := EgressReport{}
	for i := range maxEgressFailures + 3 {
		r.Note(fmt.Sprintf("host-%d:443", i), EgressAddress, now.Add(time.Duration(i)*time.Minute))
	}
	r.Note("old:443", EgressAddress, now.Add(-Kept))
	r.Forget(now.Add(time.Hour))
	if _, latest := r[fmt.Sprintf("host-%d:443", maxEgressFailures+2)]; !latest || len(r) != maxEgressFailures {
		t.Errorf("the latest %d are kept: %v", maxEgressFailures, r)
	}
}

func FuzzDecodeEgress(f *testing.F) {
	f.Add(`[{"target":"a:443","outcome":"address","first":"2026-11-02T03:04:05Z","last":"2026-11-02T03:04:05Z"}]`)
	f.Add(`[{"target":"a:443"}]`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, text string) {
		r := DecodeEgress(text)
		for _, failure := range r {
			if !failure.valid() {
				t.Errorf("%v is not valid", failure)
			}
		}
		encoded := must.Get(r.Encode())(t)
		if diff := cmp.Diff(r, DecodeEgress(encoded)); diff != "" {
			t.Errorf("decoded again (-want +got):\n%s", diff)
		}
	})
}
