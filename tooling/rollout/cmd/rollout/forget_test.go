package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// TestForgottenStepsRunAgain loses a part of what a rollout has deployed. The next rollout repairs it after the steps are forgotten.
func TestForgottenStepsRunAgain(t *testing.T) {
	dir := deployed(t)
	world := rollouttest.World(t, dir)
	for _, name := range []string{"frontend", "a-west"} {
		must.Do(t, os.Remove(filepath.Join(dir, "world", name)))
	}
	if out, err := in(t, dir, "run"); err != nil || !strings.Contains(out, "0 steps succeeded, 5 were up to date") {
		t.Errorf("before the steps are forgotten: %v\n%s", err, out)
	}
	if out, err := in(t, dir, "forget", "region"); err != nil || out != "forgotten  region/stores\nforgotten  region/deploy\n2 steps will run in the next rollout\n" {
		t.Errorf("forget: %v\n%s", err, out)
	}
	if out, err := in(t, dir, "forget", "region", "-o", "json"); err != nil || strings.Contains(out, "region/") {
		t.Errorf("forget again: %v\n%s", err, out)
	}
	if out, err := in(t, dir, "plan"); err != nil || strings.Count(out, "it has not run yet") != 2 {
		t.Errorf("plan: %v\n%s", err, out)
	}
	if out, err := in(t, dir, "run"); err != nil || !strings.Contains(out, "2 steps succeeded, 3 were up to date") {
		t.Errorf("after the steps are forgotten: %v\n%s", err, out)
	}
	if diff := cmp.Diff(world, rollouttest.World(t, dir)); diff != "" {
		t.Errorf("the rollout did not repair the world:\n%s", diff)
	}
}

// TestForgetRefusals forgets steps that do not exist, and steps of a region and an environment that another rollout has locked.
func TestForgetRefusals(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	if _, err := in(t, dir, "forget", "cell"); exitCode(err) != exitRefused || !strings.Contains(err.Error(), "cell: the region has no group and no step of this name") {
		t.Errorf("an unknown group: %v", err)
	}
	if _, err := in(t, dir, "forget"); exitCode(err) != exitRefused {
		t.Errorf("without a name: %v", err)
	}
	region := must.Get(layer.ParseTarget(rollouttest.Region))(t)
	for _, c := range []struct {
		locked layer.Target
		shared bool
		name   string
		code   int
	}{
		{region, false, "region", exitUnavailable},
		{region[:layer.Environment], true, "region", 0},
		{region[:layer.Environment], true, "global/registry", exitUnavailable},
		{region[:layer.Environment], false, "region", exitUnavailable},
	} {
		lock := must.Get(state.Acquire(filepath.Join(dir, "state"), c.locked, c.shared))(t)
		if _, err := in(t, dir, "forget", c.name); exitCode(err) != c.code {
			t.Errorf("forget %s while %s is locked (shared: %t): %v, want exit code %d", c.name, c.locked, c.shared, err, c.code)
		}
		must.Do(t, lock.Release())
	}
}
