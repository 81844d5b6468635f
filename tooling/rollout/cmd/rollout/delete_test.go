package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// deleteIn deletes a target of a checkout.
func deleteIn(t *testing.T, dir, target string, args ...string) (string, error) {
	t.Helper()
	return run(t, append([]string{"delete", target, "--config-dir", filepath.Join(dir, "config"), "--state-dir", filepath.Join(dir, "state")}, args...)...)
}

// world returns the names of the external state.
func world(t *testing.T, dir string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(rollouttest.World(t, dir)))
}

// TestStampIsDeleted deletes a stamp and removes its file. The rollout after that needs no flag, and changes nothing.
func TestStampIsDeleted(t *testing.T) {
	dir := deployed(t)
	before := world(t, dir)
	out, err := deleteIn(t, dir, "public/dev/west/2", "--dry-run")
	if err != nil || !strings.Contains(out, "stamp@2/agent: the gate empty is open\nstamp@2/agent: run [\"rm\" \"-f\" \"world/agent-m-west-2\"]\n") {
		t.Errorf("--dry-run: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, world(t, dir)); diff != "" {
		t.Errorf("--dry-run changed the world:\n%s", diff)
	}
	if out, err = deleteIn(t, dir, "public/dev/west/2"); err != nil || !strings.Contains(out, "1 steps of public/dev/west/2 are deleted") {
		t.Errorf("delete: %v\n%s", err, out)
	}
	if diff := cmp.Diff([]string{"README", "a-west", "agent-m-west-1", "frontend"}, world(t, dir)); diff != "" {
		t.Errorf("the world (-want +got):\n%s", diff)
	}
	if out, err := in(t, dir, "plan"); err != nil || strings.Count(out, "it has not run yet") != 1 {
		t.Errorf("the plan that would create the stamp again: %v\n%s", err, out)
	}
	must.Do(t, os.Remove(filepath.Join(dir, filepath.FromSlash(rollouttest.SecondStamp))))
	if out, err := in(t, dir, "run"); err != nil || !strings.Contains(out, "0 steps succeeded, 4 were up to date") {
		t.Errorf("the rollout without the stamp: %v\n%s", err, out)
	}
}

// TestRegionIsDeleted deletes a region. Its environment stays, and the region can be deployed again.
func TestRegionIsDeleted(t *testing.T) {
	dir := deployed(t)
	before := rollouttest.World(t, dir)
	if out, err := deleteIn(t, dir, rollouttest.Region, "-o", "json"); err != nil || !strings.Contains(out, `"region/deploy",
    "region/stores",
    "stamp@2/agent",
    "stamp@1/agent"`) {
		t.Errorf("delete: %v\n%s", err, out)
	}
	if diff := cmp.Diff([]string{"README"}, world(t, dir)); diff != "" {
		t.Errorf("the world (-want +got):\n%s", diff)
	}
	if out, err := in(t, dir, "run"); err != nil || !strings.Contains(out, "4 steps succeeded, 1 were up to date") {
		t.Errorf("the next rollout: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, rollouttest.World(t, dir)); diff != "" {
		t.Errorf("the world of the next rollout:\n%s", diff)
	}
}

// TestDeletionWaitsForItsGates deletes a region with clusters in both stamps: nothing is deleted, and the error has both.
func TestDeletionWaitsForItsGates(t *testing.T) {
	dir := deployed(t)
	for _, name := range []string{"m-west-1", "m-west-2"} {
		rollouttest.Change(t, dir, "world/clusters-"+name, "clusters\n")
	}
	before := world(t, dir)
	_, err := deleteIn(t, dir, rollouttest.Region)
	if exitCode(err) != exitRefused || !strings.Contains(err.Error(), "nothing was deleted:\n") || strings.Count(err.Error(), "gate empty") != 2 {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, world(t, dir)); diff != "" {
		t.Errorf("a refused deletion changed the world:\n%s", diff)
	}
}

// TestDeletionGoesOn lets the deletion of the last remaining step fail. The gates cannot be open any more when it goes on, because their services were
// deleted. A rollout in between ends the deletion, and the next one has gates again.
func TestDeletionGoesOn(t *testing.T) {
	dir := deployed(t)
	agent := filepath.Join(dir, "world", "agent-m-west-1")
	block := func() {
		t.Helper()
		must.Do(t, os.Remove(agent))
		rollouttest.Change(t, dir, "world/agent-m-west-1/file", "rm -f refuses folders\n")
	}
	repair := func() {
		t.Helper()
		must.Do(t, os.RemoveAll(agent))
		rollouttest.Change(t, dir, "world/clusters-m-west-1", "the gate is closed\n")
	}
	block()
	_, err := deleteIn(t, dir, rollouttest.Region)
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "the deletion failed: stamp@1/agent; the logs are in") {
		t.Errorf("got %v", err)
	}
	if out, err := in(t, dir, "status"); err != nil || !regexp.MustCompile(`(?m)^stamp@1/agent +deleting `).MatchString(out) {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err := in(t, dir, "plan"); err != nil || !strings.Contains(out, "its deletion has begun and has not ended") {
		t.Errorf("plan: %v\n%s", err, out)
	}
	repair()
	if out, err := deleteIn(t, dir, rollouttest.Region); err != nil || !strings.Contains(out, "1 steps of public/dev/west are deleted") {
		t.Errorf("the second deletion: %v\n%s", err, out)
	}

	must.Get(in(t, dir, "run"))(t)
	if _, err := deleteIn(t, dir, rollouttest.Region); exitCode(err) != exitRefused {
		t.Errorf("the gates after another rollout: %v", err)
	}
	must.Do(t, os.Remove(filepath.Join(dir, "world", "clusters-m-west-1")))
	block()
	if _, err := deleteIn(t, dir, rollouttest.Region); exitCode(err) != exitFailed {
		t.Errorf("the third deletion: %v", err)
	}
	repair()
	must.Get(in(t, dir, "run"))(t)
	if _, err := deleteIn(t, dir, rollouttest.Region); exitCode(err) != exitRefused {
		t.Errorf("the gates after a rollout has ended the deletion: %v", err)
	}
}

// TestDeletionNeedsOutputs deletes a region after the loss of the state of its environment. Steps of the region need outputs of the environment.
func TestDeletionNeedsOutputs(t *testing.T) {
	dir := deployed(t)
	must.Get(in(t, dir, "forget", "global/registry"))(t)
	if _, err := deleteIn(t, dir, rollouttest.Region); exitCode(err) != exitRefused || !strings.Contains(err.Error(), "region/deploy: the steps that return its inputs registry have not succeeded") {
		t.Errorf("got %v", err)
	}
}

func TestDeletionRefusals(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	for target, want := range map[string]string{
		"public/dev":         "public/dev is neither a region nor a stamp",
		"public/dev/west/9":  "the configuration has no stamp public/dev/west/9",
		"public/dev/north/1": "unknown target",
		"West":               "does not match",
	} {
		if _, err := deleteIn(t, dir, target); exitCode(err) != exitRefused || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", target, err)
		}
	}
	region := must.Get(layer.ParseTarget(rollouttest.Region))(t)
	lock := must.Get(state.Acquire(filepath.Join(dir, "state"), region, false))(t)
	if _, err := deleteIn(t, dir, rollouttest.Region); exitCode(err) != exitUnavailable {
		t.Errorf("while a rollout runs: %v", err)
	}
	must.Do(t, lock.Release())
}
