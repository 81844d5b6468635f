package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

var target = layer.Target{"public", "dev", "westus3"}

func TestStateSurvives(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(Open(dir, target))(t)
	want := Record{Status: Succeeded, Attempt: 2, Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC(), Outputs: map[string]string{"a": "b"},
		Content: &Content{Definition: "d", Inputs: map[string]string{"i": "1"}, Files: map[string]string{"f": "h"}}}
	must.Do(t, s.Put("region/stores", want))
	must.Do(t, s.PutStores(map[string]map[string]string{"public/dev/westus3": {"cosmos.account": "x"}}))
	again := must.Get(Open(dir, target))(t)
	got, found := again.Step("region/stores")
	if diff := cmp.Diff(want, got); diff != "" || !found {
		t.Errorf("the record differs (-want +got):\n%s", diff)
	}
	if again.Stores()["public/dev/westus3"]["cosmos.account"] != "x" {
		t.Errorf("stores are %v", again.Stores())
	}
}

func TestUnusableStateIsReported(t *testing.T) {
	for reason, c := range map[string]struct{ text, want string }{
		"a cut file":     {`{"version": 1, "steps": {`, "state.json: unexpected end of JSON input"},
		"a newer file":   {`{"version": 2, "target": "public/dev/westus3"}`, "has version 2"},
		"another target": {`{"version": 1, "target": "public/int/uksouth"}`, `target "public/int/uksouth"`},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "public", "dev", "westus3", fileName)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte(c.text), 0o600))
		if _, err := Open(dir, target); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", reason, err, c.want)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	var locked *LockedError
	exclusive := must.Get(Acquire(dir, target, false))(t)
	if _, err := Acquire(dir, target, true); !errors.As(err, &locked) || !strings.Contains(locked.Holder, "process ") {
		t.Errorf("a shared lock beside an exclusive one: %v", err)
	}
	must.Do(t, exclusive.Release())
	for range 2 {
		shared, err := Acquire(dir, target, true)
		if err != nil {
			t.Fatalf("a shared lock: %v", err)
		}
		defer func() { _ = shared.Release() }()
	}
	if _, err := Acquire(dir, target, false); !errors.As(err, &locked) {
		t.Errorf("an exclusive lock beside shared ones: %v", err)
	}
}
