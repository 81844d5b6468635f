package egressreport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC)

func TestNoteAndClear(t *testing.T) {
	r := Report{}
	if !r.Note("Login.example.com:443", Address, now) || r.Note("login.example.com:443", Address, now.Add(Again-time.Second)) {
		t.Error("a failure is reported once, whatever the case of its name")
	}
	if !r.Note("login.example.com:443", Address, now.Add(Again)) || !r["login.example.com:443"].First.Equal(now.Truncate(time.Second)) {
		t.Errorf("after an hour it is reported again with its first time: %v", r)
	}
	if !r.Note("login.example.com:443", Unreachable, now.Add(Again)) {
		t.Error("another outcome is reported")
	}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, Decode(text)); diff != "" {
		t.Errorf("decoded report (-want +got):\n%s", diff)
	}
	if !r.Clear("LOGIN.example.com:443") || r.Clear("login.example.com:443") || len(r) != 0 {
		t.Errorf("a cleared target is removed once: %v", r)
	}
	for reason, f := range map[string]Failure{
		"no target": {"", Port, now, now}, "an unknown outcome": {"a:443", "guess", now, now}, "a long target": {strings.Repeat("a", maxTarget+1), Port, now, now},
		"a control character": {"a\n:443", Port, now, now}, "an end before the beginning": {"a:443", Port, now, now.Add(-time.Hour)}, "no time": {Target: "a:443", Outcome: Port},
	} {
		if r.add(f) {
			t.Errorf("%s is accepted", reason)
		}
	}
}

func TestForget(t *testing.T) {
	r := Report{}
	for i := range maxFailures + 3 {
		r.Note(fmt.Sprintf("host-%d:443", i), Address, now.Add(time.Duration(i)*time.Minute))
	}
	r.Note("old:443", Address, now.Add(-Kept))
	r.Forget(now.Add(time.Hour))
	if _, latest := r[fmt.Sprintf("host-%d:443", maxFailures+2)]; !latest || len(r) != maxFailures {
		t.Errorf("the latest %d are kept: %v", maxFailures, r)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`[{"target":"a:443","outcome":"address","first":"2026-11-02T03:04:05Z","last":"2026-11-02T03:04:05Z"}]`)
	f.Add(`[{"target":"a:443"}]`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, text string) {
		r := Decode(text)
		for _, failure := range r {
			if !failure.valid() {
				t.Errorf("%v is not valid", failure)
			}
		}
		encoded, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, Decode(encoded)); diff != "" {
			t.Errorf("decoded again (-want +got):\n%s", diff)
		}
	})
}
