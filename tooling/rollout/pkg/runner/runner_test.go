package runner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// The environment variables of the test binary as a child process: the checkout, the point at which the process kills itself, and whether it deletes
// the region instead of deploying it.
const (
	checkoutVariable = "HCPMESH_TEST_ROLLOUT_CHECKOUT"
	killAtVariable   = "HCPMESH_TEST_ROLLOUT_KILL_AT"
	deleteVariable   = "HCPMESH_TEST_ROLLOUT_DELETE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(checkoutVariable); dir != "" {
		killAt, _ := strconv.ParseInt(os.Getenv(killAtVariable), 10, 64)
		points := &killer{at: killAt}
		work := rollOut
		if os.Getenv(deleteVariable) != "" {
			work = deleteRegion
		}
		result, err := work(context.Background(), dir, points)
		if err != nil && !errors.Is(err, runner.ErrFailed) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("%d points, failed %v\n", points.passed.Load(), result.Failed)
		os.Exit(0)
	}
	os.Exit(leaktest.Check(m.Run()))
}

// killer kills the process at a point, counted from 1. Each write of the state and each action has a point before and one after it.
type killer struct {
	at     int64
	passed atomic.Int64
}

func (k *killer) point() {
	if k.passed.Add(1) == k.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

type killingStore struct {
	runner.Store
	*killer
}

func (s killingStore) Put(id string, r state.Record) error {
	s.point()
	defer s.point()
	return s.Store.Put(id, r)
}

func (s killingStore) Delete(id string) error {
	s.point()
	defer s.point()
	return s.Store.Delete(id)
}

type killingShell struct {
	action.Shell
	*killer
}

func (s killingShell) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	s.point()
	defer s.point()
	return s.Shell.Run(ctx, r)
}

func (s killingShell) Rollback(ctx context.Context, r action.Request) error {
	s.point()
	defer s.point()
	return s.Shell.Rollback(ctx, r)
}

func (s killingShell) Delete(ctx context.Context, r action.Request) error {
	s.point()
	defer s.point()
	return s.Shell.Delete(ctx, r)
}

// deleteRegion deletes the region of a checkout.
func deleteRegion(ctx context.Context, dir string, points *killer) (runner.Result, error) {
	r, instances, err := openRegion(dir, points)
	if err != nil {
		return runner.Result{}, err
	}
	_, err = r.Delete(ctx, slices.DeleteFunc(instances, func(i *plan.Instance) bool { return i.Target.Level() == layer.Environment }))
	return runner.Result{}, err
}

// rollOut deploys the region of a checkout.
func rollOut(ctx context.Context, dir string, points *killer) (runner.Result, error) {
	r, instances, err := openRegion(dir, points)
	if err != nil {
		return runner.Result{}, err
	}
	return r.Run(ctx, instances)
}

// openRegion returns a runner for a checkout, and the instances of its region.
func openRegion(dir string, points *killer) (*runner.Runner, []*plan.Instance, error) {
	instances, _, err := rollouttest.Instances(dir, rollouttest.Region)
	if err != nil {
		return nil, nil, err
	}
	r, err := newRunner(dir, points)
	return r, instances, err
}

func newRunner(dir string, points *killer) (*runner.Runner, error) {
	stores := map[int]*state.Store{}
	region, err := layer.ParseTarget(rollouttest.Region)
	if err != nil {
		return nil, err
	}
	for _, level := range []int{layer.Environment, layer.Region} {
		if stores[level], err = state.Open(filepath.Join(dir, "state"), region[:level]); err != nil {
			return nil, err
		}
	}
	storeOf := func(i *plan.Instance) *state.Store { return stores[min(i.Target.Level(), layer.Region)] }
	return &runner.Runner{
		Planner: plan.Planner{Root: dir, Actions: map[string]action.Action{"Shell": killingShell{killer: points}},
			Record: func(i *plan.Instance) (state.Record, bool) { return storeOf(i).Step(i.ID) }},
		Gates:   action.Gates{HTTP: action.HTTP{Client: http.DefaultClient}},
		StoreOf: func(i *plan.Instance) runner.Store { return killingStore{storeOf(i), points} },
		LogsDir: filepath.Join(dir, "logs"), Parallel: 1, Report: func(runner.Event) {}, Now: time.Now,
	}, nil
}

// statuses returns the status of each step.
func statuses(t *testing.T, dir string) map[string]state.Status {
	t.Helper()
	found := map[string]state.Status{}
	region := must.Get(layer.ParseTarget(rollouttest.Region))(t)
	for _, level := range []int{layer.Environment, layer.Region} {
		store := must.Get(state.Open(filepath.Join(dir, "state"), region[:level]))(t)
		for id, record := range store.Steps() {
			found[id] = record.Status
		}
	}
	return found
}

// outcome is everything that a rollout leaves.
type outcome struct {
	World    map[string]string
	Statuses map[string]state.Status
}

// TestCrashes kills the process of a rollout with SIGKILL at each point, runs the rollout again, and expects the same outcome as
// without a crash.
func TestCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		releases []string
		// killed is the index of the release that is killed.
		killed int
	}{
		"a first rollout":                   {[]string{"1"}, 0},
		"an upgrade":                        {[]string{"1", "3"}, 1},
		"an upgrade that is rolled back":    {[]string{"1", "2"}, 1},
		"a first rollout that fails":        {[]string{"2"}, 0},
		"an upgrade after a failed upgrade": {[]string{"1", "2", "3"}, 2},
		"an upgrade that is given up":       {[]string{"1", "2", "1"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, points := scenario(t, c.releases, c.killed, 0)
			t.Logf("%d points; the outcome is %v", points, want)
			step := nightly.Choose(30, 1)
			for at := 1; at <= points; at += step {
				got, _ := scenario(t, c.releases, c.killed, at)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("killed at point %d of %d: the outcome differs (-undisturbed +killed):\n%s", at, points, diff)
				}
			}
		})
	}
}

// scenario deploys releases one after the other. The process of the killed one is killed at a point, unless that is 0. If it is the last
// release, it is then deployed again. The second result is the number of points of the killed release without a crash.
func scenario(t *testing.T, releases []string, killed, killAt int) (outcome, int) {
	t.Helper()
	dir := rollouttest.Write(t, nil)
	points := 0
	for i, release := range releases {
		rollouttest.Change(t, dir, rollouttest.RegionLayer, "frontend: {release: \""+release+"\"}\n")
		if i == killed && killAt > 0 {
			if _, dead := child(t, dir, killAt, false); !dead {
				t.Fatalf("the process was not killed at point %d", killAt)
			}
			if i < len(releases)-1 {
				continue
			}
		}
		if passed, _ := child(t, dir, 0, false); i == killed {
			points = passed
		}
	}
	return outcome{rollouttest.World(t, dir), statuses(t, dir)}, points
}

// TestCrashesOfDeletions kills the process of a deletion at each point. Another deletion must complete it.
func TestCrashesOfDeletions(t *testing.T) {
	deploy := func() string {
		dir := rollouttest.Write(t, nil)
		mustRollOut(t, dir)
		return dir
	}
	check := func(dir string, at int) {
		t.Helper()
		got := outcome{rollouttest.World(t, dir), statuses(t, dir)}
		want := outcome{map[string]string{"README": "the external state\n"}, map[string]state.Status{"global/registry": state.Succeeded}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("killed at point %d (-want +got):\n%s", at, diff)
		}
	}
	dir := deploy()
	points, _ := child(t, dir, 0, true)
	check(dir, 0)
	if points < 20 {
		t.Errorf("a deletion has %d points", points)
	}
	for at := 1; at <= points; at++ {
		dir := deploy()
		if _, dead := child(t, dir, at, true); !dead {
			t.Fatalf("the process was not killed at point %d", at)
		}
		child(t, dir, 0, true)
		check(dir, at)
	}
}

// child runs a rollout, or a deletion, in a process of its own. It returns the number of points, and whether the process was killed.
func child(t *testing.T, dir string, killAt int, deletion bool) (points int, killed bool) {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), checkoutVariable+"="+dir, killAtVariable+"="+strconv.Itoa(killAt))
	if deletion {
		command.Env = append(command.Env, deleteVariable+"=1")
	}
	var errors strings.Builder
	command.Stderr = &errors
	out, err := command.Output()
	if command.ProcessState != nil && command.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return 0, true
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errors.String())
	}
	if _, err := fmt.Sscanf(string(out), "%d points", &points); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return points, false
}

func mustRollOut(t *testing.T, dir string) runner.Result {
	t.Helper()
	return must.Get(rollOut(t.Context(), dir, &killer{}))(t)
}

func TestSecondRunSkipsEverything(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	all := []string{"global/registry", "region/deploy", "region/stores", "stamp@1/agent", "stamp@2/agent"}
	if diff := cmp.Diff(runner.Result{Succeeded: all}, mustRollOut(t, dir)); diff != "" {
		t.Errorf("first run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(runner.Result{Skipped: all}, mustRollOut(t, dir)); diff != "" {
		t.Errorf("second run (-want +got):\n%s", diff)
	}
	rollouttest.Change(t, dir, "templates/stores", "more tables\n")
	if got := mustRollOut(t, dir).Succeeded; !cmp.Equal(got, []string{"region/stores"}) {
		t.Errorf("after a change of a file %v ran", got)
	}
	rollouttest.Change(t, dir, "config/clouds/public/dev.yaml", "shared: other\n")
	if got := mustRollOut(t, dir).Succeeded; !cmp.Equal(got, []string{"global/registry", "region/deploy"}) {
		t.Errorf("after a change of an output %v ran", got)
	}
}

func TestFailureStopsTheRollout(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{rollouttest.StampPipeline: `group: stamp
steps:
- name: agent
  action: Shell
  timeout: 1m
  inputs: {name: {configuration: managementCluster.name}}
  with: {command: [cp, "releases/${name}", world/agent]}
`})
	result, err := rollOut(t.Context(), dir, &killer{})
	// The steps of both stamps may run when the first one fails.
	if !errors.Is(err, runner.ErrFailed) || len(result.Failed) == 0 || slices.ContainsFunc(result.Failed, func(step string) bool { return !strings.HasPrefix(step, "stamp@") }) {
		t.Errorf("got %v, %+v", err, result)
	}
	if len(result.Failed)+len(result.NotRun) != 4 {
		t.Errorf("failed: %v, did not run: %v", result.Failed, result.NotRun)
	}
	for _, name := range []string{"m-west-1", "m-west-2"} {
		rollouttest.Change(t, dir, "releases/"+name, "agent\n")
	}
	if got := mustRollOut(t, dir); len(got.Succeeded) != 4 || len(got.Skipped) != 1 {
		t.Errorf("after the repair: %+v", got)
	}
}

func TestRetriesFollowTheClassOfTheError(t *testing.T) {
	for reason, c := range map[string]struct {
		codes    string
		attempts int
	}{
		"a class of the step":          {`{"1": unavailable}`, 3},
		"a class that is not repeated": {`{"1": conflict}`, 1},
		"no class":                     {`{}`, 1},
	} {
		dir := rollouttest.Write(t, map[string]string{rollouttest.GlobalPipeline: `group: global
steps:
- name: registry
  action: Shell
  timeout: 1m
  retry: {errors: [unavailable], attempts: 3, pause: 1s}
  outputs: [address]
  with: {command: [cat, no-such-file], exitCodes: ` + c.codes + `}
`})
		r, instances, err := openRegion(dir, &killer{})
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		r.Report = func(e runner.Event) { events = append(events, e.Text) }
		if _, err := r.Run(t.Context(), instances); !errors.Is(err, runner.ErrFailed) {
			t.Errorf("%s: %v", reason, err)
		}
		ran := 0
		for _, text := range events {
			if strings.HasPrefix(text, "running") {
				ran++
			}
		}
		if last := events[len(events)-1]; ran != c.attempts || !strings.Contains(last, "no-such-file: No such file") {
			t.Errorf("%s: %d attempts, want %d; the last event is %q", reason, ran, c.attempts, last)
		}
	}
}

// TestInterruptedRolloutGoesOn ends the context while a program runs. The program must end, and the next rollout must complete.
func TestInterruptedRolloutGoesOn(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{rollouttest.GlobalPipeline: `group: global
steps:
- name: registry
  action: Shell
  timeout: 1m
  outputs: [address]
  with: {command: [cat, gate]}
`})
	fifo := filepath.Join(dir, "gate")
	must.Do(t, syscall.Mkfifo(fifo, 0o600))
	r, instances, err := openRegion(dir, &killer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.Report = func(e runner.Event) {
		if e.Text == "running" {
			cancel()
		}
	}
	if _, err := r.Run(ctx, instances); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := statuses(t, dir)["global/registry"]; got != state.Failed {
		t.Errorf("the step is %s", got)
	}
	must.Do(t, os.Remove(fifo))
	rollouttest.Change(t, dir, "gate", `{"address": "a"}`)
	if got := mustRollOut(t, dir); len(got.Succeeded) != 5 {
		t.Errorf("the next rollout: %+v", got)
	}
}

// TestTimeoutEndsAnAttempt runs a program that does not end.
func TestTimeoutEndsAnAttempt(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{rollouttest.GlobalPipeline: `group: global
steps:
- name: registry
  action: Shell
  timeout: 1s
  retry: {errors: [timeout], attempts: 2, pause: 1s}
  outputs: [address]
  with: {command: [tail, -f, /dev/null]}
`})
	r, instances, err := openRegion(dir, &killer{})
	if err != nil {
		t.Fatal(err)
	}
	var last string
	retried := false
	r.Report = func(e runner.Event) {
		last, retried = e.Text, retried || strings.HasPrefix(e.Text, "attempt 1 failed (timeout), retrying")
	}
	if _, err := r.Run(t.Context(), instances); !errors.Is(err, runner.ErrFailed) || !retried || last != "failed: tail was stopped: context deadline exceeded" {
		t.Errorf("%v; retried %t; the last event is %q", err, retried, last)
	}
}

func TestOutputsAreChecked(t *testing.T) {
	for reason, c := range map[string]struct{ output, want string }{
		"no JSON":         {"hello", "standard output is not a JSON object"},
		"a missing one":   {"{}", "did not return the output address"},
		"another one":     {`{"address": "a", "more": "b"}`, "the output more, which the step does not name"},
		"a secret":        {`{"address": "postgres://a:hunter2@host/db"}`, "the output address has the form of a secret"},
		"a nested object": {`{"address": {}}`, "standard output is not a JSON object"},
	} {
		dir := rollouttest.Write(t, map[string]string{"answer": c.output, rollouttest.GlobalPipeline: `group: global
steps:
- name: registry
  action: Shell
  timeout: 1m
  outputs: [address]
  with: {command: [cat, answer]}
`})
		if _, err := rollOut(t.Context(), dir, &killer{}); !errors.Is(err, runner.ErrFailed) {
			t.Errorf("%s: %v", reason, err)
		}
		text := must.Get(os.ReadFile(filepath.Join(dir, "state", "public", "dev", "state.json")))(t)
		if !strings.Contains(string(text), c.want) || strings.Contains(string(text), "hunter2") {
			t.Errorf("%s: the state is %s", reason, text)
		}
	}
}
