package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// in runs a command for the region of a checkout.
func in(t *testing.T, dir, verb string, args ...string) (string, error) {
	t.Helper()
	return run(t, append([]string{verb, rollouttest.Region, "--config-dir", filepath.Join(dir, "config"), "--state-dir", filepath.Join(dir, "state")}, args...)...)
}

// deployed returns a checkout with a deployed region.
func deployed(t *testing.T) (dir string) {
	t.Helper()
	dir = rollouttest.Write(t, nil)
	must.Get(in(t, dir, "run"))(t)
	return dir
}

func TestPlanRunAndStatus(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	out, err := in(t, dir, "plan")
	if err != nil || strings.Count(out, "it has not run yet") != 5 {
		t.Errorf("plan: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("plan wrote state: %v", err)
	}
	if out, err = in(t, dir, "run"); err != nil || !strings.Contains(out, "5 steps succeeded, 0 were up to date, 0 failed, 0 did not run") {
		t.Errorf("run: %v\n%s", err, out)
	}
	if out, err = in(t, dir, "plan"); err != nil || strings.Count(out, "up to date") != 5 {
		t.Errorf("plan after run: %v\n%s", err, out)
	}
	out = must.Get(in(t, dir, "status", "-o", "json"))(t)
	var records map[string]state.Record
	if err := json.Unmarshal([]byte(out), &records); err != nil || len(records) != 5 || records["region/deploy"].Status != state.Succeeded {
		t.Errorf("status: %v\n%s", err, out)
	}
}

// TestRegionsShareTheirEnvironment deploys a second region. The steps of the environment do not run again.
func TestRegionsShareTheirEnvironment(t *testing.T) {
	dir := deployed(t)
	out, err := run(t, "run", "public/dev/east", "--config-dir", filepath.Join(dir, "config"), "--state-dir", filepath.Join(dir, "state"))
	if err != nil || !strings.Contains(out, "3 steps succeeded, 1 were up to date") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestLossesNeedAFlag(t *testing.T) {
	dir := deployed(t)
	world := rollouttest.World(t, dir)
	rollouttest.Change(t, dir, rollouttest.RegionLayer, "account: other\n")
	must.Do(t, os.Remove(filepath.Join(dir, filepath.FromSlash(rollouttest.SecondStamp))))
	for _, verb := range []string{"plan", "run"} {
		_, err := in(t, dir, verb, "--allow-loss", "public/dev/west:account")
		if exitCode(err) != exitRefused || !strings.Contains(err.Error(), "public/dev/west/2 disappears with its data stores and clusters (allow with --allow-loss public/dev/west/2)") || strings.Contains(err.Error(), "account changes") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if diff := cmp.Diff(world, rollouttest.World(t, dir)); diff != "" {
		t.Errorf("a refused rollout changed the world:\n%s", diff)
	}
	if _, err := in(t, dir, "run", "--allow-loss", "public/dev/west:account", "--allow-loss", "public/dev/west/2"); err != nil {
		t.Error(err)
	}
	if _, err := in(t, dir, "plan", "--allow-loss", "public/dev/west:account"); exitCode(err) != exitRefused || !strings.Contains(err.Error(), "does not drop or delete this") {
		t.Errorf("a flag without a loss: %v", err)
	}
}

func TestExitCodes(t *testing.T) {
	broken := map[string]string{rollouttest.RegionLayer: "frontend: {release: \"2\"}\n"}
	for reason, c := range map[string]struct {
		changed map[string]string
		args    []string
		code    int
		want    string
	}{
		"a failed step":        {broken, []string{"run", rollouttest.Region}, exitFailed, "the rollout failed: region/deploy; the logs are in"},
		"an unknown region":    {nil, []string{"plan", "public/dev/north"}, exitRefused, "unknown target"},
		"a stamp":              {nil, []string{"plan", "public/dev/west/1"}, exitRefused, "is not a region"},
		"no region":            {nil, []string{"plan"}, exitRefused, "accepts 1 arg"},
		"an unknown flag":      {nil, []string{"plan", rollouttest.Region, "--fast"}, exitRefused, "unknown flag: --fast"},
		"an unknown format":    {nil, []string{"plan", rollouttest.Region, "-o", "xml"}, exitRefused, "--output"},
		"no parallel steps":    {nil, []string{"run", rollouttest.Region, "--parallel", "0"}, exitRefused, "--parallel: 0 is less than 1"},
		"a wrong pipeline":     {map[string]string{rollouttest.StampPipeline: "group: cell\nsteps: []\n"}, []string{"run", rollouttest.Region}, exitRefused, "stamp/pipeline.yaml:2: steps: minItems"},
		"a missing value":      {map[string]string{rollouttest.RegionLayer: "frontend: {release: null}\n"}, []string{"run", rollouttest.Region}, exitRefused, "1 of 5 steps cannot run:\n  region/deploy: the input release needs the key frontend.release"},
		"wrong credentials":    {nil, []string{"plan", rollouttest.Region, "--registry-credentials", "/dev/null"}, exitRefused, "--registry-credentials: /dev/null is not in the format of Docker's config.json"},
		"a file without certs": {nil, []string{"plan", rollouttest.Region, "--ca-file", "/dev/null"}, exitRefused, "--ca-file: /dev/null contains no certificate"},
	} {
		dir := rollouttest.Write(t, c.changed)
		_, err := run(t, append(c.args, "--config-dir", filepath.Join(dir, "config"), "--state-dir", filepath.Join(dir, "state"))...)
		if exitCode(err) != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, %v", reason, exitCode(err), err)
		}
	}
}

// TestOneRolloutAtATime takes the lock of the region, and then that of the environment.
func TestOneRolloutAtATime(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	region := must.Get(layer.ParseTarget(rollouttest.Region))(t)
	for _, target := range []layer.Target{region, region[:layer.Environment]} {
		lock := must.Get(state.Acquire(filepath.Join(dir, "state"), target, false))(t)
		if _, err := in(t, dir, "run"); exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), "another rollout of "+target.String()+" runs (process ") {
			t.Errorf("while %s is locked: %v", target, err)
		}
		must.Do(t, lock.Release())
	}
	if _, err := in(t, dir, "run"); err != nil {
		t.Error(err)
	}
	shared := must.Get(state.Acquire(filepath.Join(dir, "state"), region[:layer.Environment], true))(t)
	defer func() { _ = shared.Release() }()
	if _, err := in(t, dir, "run"); err != nil {
		t.Errorf("while another region of the environment is deployed: %v", err)
	}
}

// TestExplanationsAreGatesOfTheLastService checks that a step whose gate expects every component to be ready runs after all services.
// Otherwise the first rollout of a region waits for components that are deployed later.
func TestExplanationsAreGatesOfTheLastService(t *testing.T) {
	e := &environment{}
	_, topology, err := e.open()
	if err != nil {
		t.Fatal(err)
	}
	explained := 0
	for _, g := range topology.Groups {
		for _, s := range g.Steps {
			if !slices.ContainsFunc(s.Gates, func(gate definition.Gate) bool { return gate.Explain != nil }) {
				continue
			}
			explained++
			earlier := map[string]bool{g.Name: true}
			var visit func(*definition.Step)
			visit = func(s *definition.Step) {
				for _, before := range topology.Before(s) {
					earlier[before.Group.Name] = true
					visit(before)
				}
			}
			visit(s)
			for _, name := range []string{"maestro-agent", "maestro-server", "cluster-service", "backend", "admin", "gateway-access", "monitor", "frontend"} {
				if !earlier[name] {
					t.Errorf("%s has a gate that needs %s, which may be deployed later", s.ID(), name)
				}
			}
		}
	}
	if explained == 0 {
		t.Error("no step has an explanation as a gate")
	}
}

// TestEveryRegionCanBePlanned plans each region of the repository. A step may only be blocked by an image that was not published. Only an
// environment without Azure leaves steps out, apart from optional parts.
func TestEveryRegionCanBePlanned(t *testing.T) {
	found := must.Get(deployment.Find())(t)
	configuration := must.Get(deployment.Open(found))(t)
	for _, target := range configuration.Targets(nil) {
		if target.Level() != layer.Region {
			continue
		}
		stateDir := t.TempDir()
		out, err := run(t, "plan", target.String(), "--state-dir", stateDir, "-o", "json")
		if err != nil && exitCode(err) != exitRefused {
			t.Errorf("%s: %v", target, err)
		}
		var shown struct{ Steps []shownDecision }
		if err := json.NewDecoder(strings.NewReader(out)).Decode(&shown); err != nil {
			t.Fatalf("%s: %v\n%s", target, err, out)
		}
		stamps := len(configuration.Tree.At(layer.Stamp, target))
		agents := 0
		for _, step := range shown.Steps {
			if strings.HasPrefix(step.Step, "maestro-agent@") {
				agents++
			}
			for _, reason := range step.Reasons {
				waits := strings.HasSuffix(reason, "which runs first")
				// Azure Government has no egress gateway and no portal, and so no certificate for it. The frontend of developers does not rely on MISE.
				leftOut := step.Verdict == plan.LeftOut && (strings.HasPrefix(target.String(), "public/local/") ||
					strings.HasPrefix(target.String(), "usgov/") && (step.Step == "region/certificate-portal" || step.Step == "gateway-egress/deploy") ||
					strings.HasPrefix(target.String(), "public/dev/") && step.Step == "service-cluster/mise")
				if !waits && !leftOut && reason != "it has not run yet" && !strings.Contains(reason, ".image.digest: is required for a deployment") {
					t.Errorf("%s: %s: %s", target, step.Step, reason)
				}
			}
		}
		if agents != stamps {
			t.Errorf("%s has %d stamps and %d agents", target, stamps, agents)
		}
		if entries, err := os.ReadDir(stateDir); err != nil || len(entries) > 0 {
			t.Errorf("%s: the plan wrote %v (%v)", target, entries, err)
		}
	}
}
