package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/azure"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/helm"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/imagemirror"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// session is one command for a region: its instances and the state of the region and of its environment.
type session struct {
	*environment
	configuration *deployment.Configuration
	region        layer.Target
	instances     []*plan.Instance
	planner       plan.Planner
	client        *http.Client
	// stores are the states by target: the environment's, and the region's with its stamps.
	stores map[string]*state.Store
}

// session reads everything that a command for a region needs.
func (e *environment) session(name string) (*session, error) {
	region, err := layer.ParseTarget(name)
	if err != nil {
		return nil, &inputError{err}
	}
	configuration, topology, err := e.open()
	if err != nil {
		return nil, &inputError{err}
	}
	if err := e.useImages(configuration, region); err != nil {
		return nil, &inputError{err}
	}
	instances, err := plan.Instances(topology, configuration, region)
	if err != nil {
		return nil, &inputError{err}
	}
	client, err := e.client()
	if err != nil {
		return nil, &inputError{err}
	}
	root, err := filepath.Abs(e.root)
	if err != nil {
		return nil, err
	}
	secretsDir := e.secretsDir
	if secretsDir != "" { // programs run in another folder
		if secretsDir, err = filepath.Abs(secretsDir); err != nil {
			return nil, err
		}
	}
	actions, err := e.available(client, root, configuration, instances)
	if err != nil {
		return nil, err
	}
	s := &session{environment: e, configuration: configuration, region: region, instances: instances, client: client}
	s.planner = plan.Planner{Root: root, Actions: actions, SecretsDir: secretsDir, Record: func(i *plan.Instance) (state.Record, bool) { return s.storeOf(i).Step(i.ID) }}
	return s, s.read()
}

// available returns the actions of this program. Those of Azure need a configuration with the endpoints of the cloud.
func (e *environment) available(client *http.Client, root string, configuration *deployment.Configuration, instances []*plan.Instance) (map[string]action.Action, error) {
	actions := action.Available(client)
	if _, err := (&registryclient.Options{Credentials: e.registryCredentials, Prefix: "-registry-"}).Remote(); err != nil {
		return nil, &inputError{err}
	}
	actions["Helm"] = helm.Helm{Configuration: configuration, Clusters: helm.Kubeconfigs{Dir: e.kubeconfigDir}}
	actions["ImageMirror"] = imagemirror.ImageMirror{Configuration: configuration, Authorities: e.caFile, Credentials: e.registryCredentials}
	var err error
	if actions["Infrastructure"], err = e.infrastructure(root, configuration, instances); err != nil {
		return nil, &inputError{err}
	}
	rendered := instances[0].Values
	manager, authority := rendered.Get("endpoints", "resourceManager"), rendered.Get("endpoints", "authority")
	if manager == nil || authority == nil {
		return actions, nil
	}
	connection, err := azure.Connect(fmt.Sprint(manager.Value), fmt.Sprint(authority.Value), client)
	if err != nil {
		return nil, err
	}
	maps.Copy(actions, azure.Actions(connection))
	return actions, nil
}

// read reads the state again.
func (s *session) read() error {
	s.stores = map[string]*state.Store{}
	for _, target := range []layer.Target{s.region, s.shared()} {
		store, err := state.Open(s.stateDir, target)
		if err != nil {
			return err
		}
		s.stores[target.String()] = store
	}
	return nil
}

// shared returns the environment of the region.
func (s *session) shared() layer.Target { return s.region[:layer.Environment] }

// storeOf returns the state of an instance. A stamp has that of its region.
func (s *session) storeOf(i *plan.Instance) *state.Store {
	return s.stores[i.Target[:min(len(i.Target), layer.Region)].String()]
}

// plan decides about all steps, and returns the losses that no flag allows.
func (s *session) plan() ([]plan.Decision, []plan.Loss, error) {
	decisions, err := s.planner.All(s.instances)
	if err != nil {
		return nil, nil, err
	}
	losses := plan.Losses(s.stores[s.region.String()].Stores(), plan.Stores(s.configuration, s.instances))
	for _, name := range s.allowLoss {
		if !slices.ContainsFunc(losses, func(l plan.Loss) bool { return l.Name() == name }) {
			return nil, nil, &inputError{fmt.Errorf("--allow-loss %s: the rollout does not drop or delete this", name)}
		}
	}
	losses = slices.DeleteFunc(losses, func(l plan.Loss) bool { return slices.Contains(s.allowLoss, l.Name()) })
	return decisions, losses, nil
}

// refusal returns an error if the rollout must not start.
func refusal(decisions []plan.Decision, losses []plan.Loss) error {
	var lines []string
	for _, l := range losses {
		lines = append(lines, fmt.Sprintf("  %s (allow with --allow-loss %s)", l, l.Name()))
	}
	if len(lines) > 0 {
		return &inputError{fmt.Errorf("the rollout would drop data stores or delete clusters:\n%s", strings.Join(lines, "\n"))}
	}
	for _, d := range decisions {
		if d.Verdict == plan.Blocked {
			lines = append(lines, fmt.Sprintf("  %s: %s", d.ID, strings.Join(d.Reasons, "; ")))
		}
	}
	if len(lines) > 0 {
		return &inputError{fmt.Errorf("%d of %d steps cannot run:\n%s", len(lines), len(decisions), strings.Join(lines, "\n"))}
	}
	return nil
}

// locks are the locks that a command has taken.
type locks struct {
	dir   string
	taken []*state.Lock
}

func (l *locks) take(target layer.Target, shared bool) error {
	lock, err := state.Acquire(l.dir, target, shared)
	if err == nil {
		l.taken = append(l.taken, lock)
	}
	return err
}

// release gives all locks back.
func (l *locks) release() {
	for _, lock := range l.taken {
		_ = lock.Release()
	}
	l.taken = nil
}

// takeLocks takes the lock of the region, and that of the environment.
func (s *session) takeLocks(environmentShared bool) (*locks, error) {
	held := &locks{dir: s.stateDir}
	err := held.take(s.region, false)
	if err == nil {
		err = held.take(s.shared(), environmentShared)
	}
	return held, err
}

// lock takes the lock of the region, and that of the environment: shared if all steps of the environment are up to date.
func (s *session) lock() (release func(), err error) {
	held, err := s.takeLocks(true)
	if err != nil {
		return held.release, err
	}
	current, err := s.sharedIsCurrent()
	if err != nil || current {
		return held.release, err
	}
	_ = held.taken[1].Release()
	held.taken = held.taken[:1]
	if err := held.take(s.shared(), false); err != nil {
		return held.release, err
	}
	return held.release, s.read() // another rollout may have changed it meanwhile
}

// lockFor takes the locks for a change of the records of instances, and reads the state. Rollouts of other regions use that of the environment.
func (s *session) lockFor(instances []*plan.Instance) (release func(), err error) {
	held, err := s.takeLocks(!slices.ContainsFunc(instances, func(i *plan.Instance) bool { return i.Target.Level() == layer.Environment }))
	if err != nil {
		return held.release, err
	}
	return held.release, s.read()
}

// sharedIsCurrent reads the state and reports whether no step of the environment has to run.
func (s *session) sharedIsCurrent() (bool, error) {
	if err := s.read(); err != nil {
		return false, err
	}
	decisions, err := s.planner.All(s.instances)
	return !slices.ContainsFunc(decisions, func(d plan.Decision) bool {
		return d.Target.Level() == layer.Environment && d.Verdict != plan.Skip && d.Verdict != plan.LeftOut
	}), err
}

// run plans under the locks and executes the plan.
func (s *session) run(ctx context.Context, report func(runner.Event)) (runner.Result, error) {
	release, err := s.lock()
	defer release()
	if err != nil {
		return runner.Result{}, err
	}
	decisions, losses, err := s.plan()
	if err == nil {
		err = refusal(decisions, losses)
	}
	if err != nil {
		return runner.Result{}, err
	}
	store := s.stores[s.region.String()]
	if err := store.PutStores(plan.Stores(s.configuration, s.instances)); err != nil {
		return runner.Result{}, err
	}
	r := s.runner(report)
	result, err := r.Run(ctx, s.instances)
	if errors.Is(err, runner.ErrFailed) {
		err = fmt.Errorf("%w; the logs are in %s; `rollout run %s` goes on after the cause is removed", err, r.LogsDir, s.region)
	}
	return result, err
}

// runner returns the runner of the region's steps.
func (s *session) runner(report func(runner.Event)) *runner.Runner {
	return &runner.Runner{
		Planner: s.planner, Gates: action.Gates{HTTP: action.HTTP{Client: s.client}, Hcpctl: "hcpctl"},
		StoreOf: func(i *plan.Instance) runner.Store { return s.storeOf(i) },
		LogsDir: filepath.Join(s.stores[s.region.String()].Dir(), "logs"), Parallel: int64(s.parallel), Report: report, Now: time.Now,
	}
}
