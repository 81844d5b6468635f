package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// TestStepsOfTheConfigurationAreLeftOut leaves out a step of the environment's group and one that another step depends on.
func TestStepsOfTheConfigurationAreLeftOut(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{
		rollouttest.DevLayer: "pipelines: {without: [global/banner, region/stores]}\n",
		rollouttest.GlobalPipeline: `group: global
steps:
- {name: banner, action: Shell, timeout: 1m, with: {command: ["false"]}}
- name: registry
  action: Shell
  timeout: 1m
  inputs: {shared: {configuration: shared}}
  outputs: [address]
  with: {command: [printf, '{"address": "registry-%s"}', "${shared}"]}
`})
	out, err := in(t, dir, "run")
	if err != nil || !strings.Contains(out, "4 steps succeeded, 0 were up to date, 0 failed, 0 did not run, 2 are left out\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if world := rollouttest.World(t, dir); world["frontend"] != "healthy 1\n" || world["a-west"] != "" {
		t.Errorf("the world is %v", world)
	}
	if out, err = in(t, dir, "status"); err != nil || strings.Count(out, "left out") != 2 || strings.Contains(out, "not run") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err = in(t, dir, "plan", "--diff"); err != nil || strings.Count(out, "left out") != 2 || strings.Count(out, "up to date") != 4 {
		t.Errorf("plan: %v\n%s", err, out)
	}

	// The step of the environment that is left out does not have to run, so a rollout of another region may run at the same time.
	region := must.Get(layer.ParseTarget(rollouttest.Region))(t)
	shared := must.Get(state.Acquire(filepath.Join(dir, "state"), region[:layer.Environment], true))(t)
	defer func() { _ = shared.Release() }()
	if out, err = in(t, dir, "run"); err != nil || !strings.Contains(out, "0 steps succeeded, 4 were up to date, 0 failed, 0 did not run, 2 are left out\n") {
		t.Errorf("again: %v\n%s", err, out)
	}

	// What was left out runs when the configuration has it again.
	rollouttest.Change(t, dir, rollouttest.DevLayer, "pipelines: {without: [global/banner]}\n")
	must.Do(t, shared.Release())
	if out, err = in(t, dir, "run"); err != nil || !strings.Contains(out, "1 steps succeeded, 4 were up to date") || rollouttest.World(t, dir)["a-west"] == "" {
		t.Errorf("without the entry: %v\n%s", err, out)
	}
}

// TestFailuresPassStepsThatAreLeftOut expects that no step runs after one that failed, although the step between them is left out.
func TestFailuresPassStepsThatAreLeftOut(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{
		rollouttest.DevLayer: "pipelines: {without: [region/middle]}\n",
		rollouttest.RegionPipeline: `group: region
steps:
- {name: first, action: Shell, timeout: 1m, with: {command: ["false"]}}
- {name: middle, action: Shell, timeout: 1m, dependsOn: [first], with: {command: ["true"]}}
- {name: last, action: Shell, timeout: 1m, dependsOn: [middle], with: {command: [cp, releases/1, world/last]}}
`})
	out, err := in(t, dir, "run")
	if exitCode(err) != exitFailed || !strings.Contains(out, "1 failed, 1 did not run, 1 are left out\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if rollouttest.World(t, dir)["last"] != "" {
		t.Error("a step ran after one that failed")
	}
}
