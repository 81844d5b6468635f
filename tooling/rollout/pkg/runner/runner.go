// Package runner executes the steps of a plan along their dependencies.
//
// Steps run in parallel. The runner stores the state of a step before each attempt, before a rollback, and when the step ends, so that a
// rollout that was killed at any time can be run again: finished steps are skipped, the others run again, and actions are idempotent.
// After the first failure no further step starts; those that run are completed.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// Store keeps the records of steps.
type Store interface {
	Step(id string) (state.Record, bool)
	Put(id string, r state.Record) error
	Delete(id string) error
}

// Event is a change of one step, for people who watch the rollout.
type Event struct {
	Time time.Time
	Step string
	// Text describes the change. Ended reports whether the step has ended, and Failed whether it failed.
	Text          string
	Ended, Failed bool
}

// Runner executes plans.
type Runner struct {
	Planner plan.Planner
	Gates   action.Gates
	// StoreOf returns the store of an instance.
	StoreOf func(*plan.Instance) Store
	// LogsDir has one log file for each step.
	LogsDir string
	// Parallel is the largest number of steps that run at the same time.
	Parallel int64
	// Report receives the events, one at a time.
	Report func(Event)
	// Now returns the time.
	Now func() time.Time
}

// Result is the outcome of a rollout.
type Result struct {
	Succeeded, Skipped, Failed, NotRun []string
	// LeftOut are the steps that the environment does not have.
	LeftOut []string
}

// Steps returns the number of steps of the rollout.
func (r Result) Steps() int {
	return len(r.Succeeded) + len(r.Skipped) + len(r.Failed) + len(r.NotRun) + len(r.LeftOut)
}

// ErrFailed means that a step failed.
var ErrFailed = errors.New("the rollout failed")

// errPrevented means that a step did not run because another one failed or the rollout was interrupted.
var errPrevented = errors.New("not run")

// run is one execution of Run.
type run struct {
	*Runner
	ctx   context.Context
	slots *semaphore.Weighted

	mu      sync.Mutex
	stopped bool
	result  Result
}

// Run executes the instances, which are in topological order. It returns ErrFailed if a step failed, and the context's error if the
// context ended.
func (r *Runner) Run(ctx context.Context, instances []*plan.Instance) (Result, error) {
	e := &run{Runner: r, ctx: ctx, slots: semaphore.NewWeighted(r.Parallel)}
	ended, failed := map[*plan.Instance]chan struct{}{}, map[*plan.Instance]*bool{}
	for _, instance := range instances {
		ended[instance], failed[instance] = make(chan struct{}), new(bool)
	}
	var steps sync.WaitGroup
	for _, instance := range instances {
		steps.Go(func() {
			defer close(ended[instance])
			for _, need := range instance.Needs {
				<-ended[need]
				*failed[instance] = *failed[instance] || *failed[need]
			}
			if instance.LeftOut {
				e.leaveOut(instance)
				return
			}
			if *failed[instance] {
				e.end(instance, false, errPrevented)
				return
			}
			skipped, err := e.step(instance)
			*failed[instance] = err != nil
			e.end(instance, skipped, err)
		})
	}
	steps.Wait()
	for _, list := range []*[]string{&e.result.Succeeded, &e.result.Skipped, &e.result.Failed, &e.result.NotRun, &e.result.LeftOut} {
		slices.Sort(*list)
	}
	switch {
	case ctx.Err() != nil:
		return e.result, ctx.Err()
	case len(e.result.Failed) > 0:
		return e.result, fmt.Errorf("%w: %s", ErrFailed, strings.Join(e.result.Failed, ", "))
	}
	return e.result, nil
}

// leaveOut adds an instance to the result that the environment does not have.
func (e *run) leaveOut(instance *plan.Instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.result.LeftOut = append(e.result.LeftOut, instance.ID)
}

// end adds an instance to the result.
func (e *run) end(instance *plan.Instance, skipped bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, errPrevented):
		e.result.NotRun = append(e.result.NotRun, instance.ID)
	case err != nil:
		e.stopped = true
		e.result.Failed = append(e.result.Failed, instance.ID)
	case skipped:
		e.result.Skipped = append(e.result.Skipped, instance.ID)
	default:
		e.result.Succeeded = append(e.result.Succeeded, instance.ID)
	}
}

func (e *run) report(instance *plan.Instance, ended, failed bool, format string, values ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Report(Event{Time: e.Now(), Step: instance.ID, Text: fmt.Sprintf(format, values...), Ended: ended, Failed: failed})
}

// step runs an instance whose dependencies have succeeded, unless it is up to date.
func (e *run) step(instance *plan.Instance) (skipped bool, err error) {
	if err := e.slots.Acquire(e.ctx, 1); err != nil {
		return false, errPrevented
	}
	defer e.slots.Release(1)
	e.mu.Lock()
	stopped := e.stopped
	e.mu.Unlock()
	if stopped || e.ctx.Err() != nil {
		return false, errPrevented
	}
	decision, err := e.Planner.Decide(instance, e.outputs)
	if err != nil {
		return false, e.reported(instance, err)
	}
	switch decision.Verdict {
	case plan.Skip:
		e.report(instance, true, false, "up to date")
		return true, nil
	case plan.Blocked:
		return false, e.reported(instance, errors.New(strings.Join(decision.Reasons, "; ")))
	}
	return false, e.execute(decision)
}

// outputs returns the outputs of the last success of an instance, or false if there are none.
func (r *Runner) outputs(producer *plan.Instance) (map[string]string, bool) {
	record, _ := r.StoreOf(producer).Step(producer.ID)
	return record.Outputs, len(record.Outputs) > 0
}

func (e *run) reported(instance *plan.Instance, err error) error {
	e.report(instance, true, true, "failed: %s", err)
	return err
}

// execute runs the action and the gates of a step, and rolls it back if it fails. It stores each state before its work begins.
func (e *run) execute(d plan.Decision) error {
	store := e.StoreOf(d.Instance)
	before, _ := store.Step(d.ID)
	record := state.Record{Status: state.Running, Started: e.Now(), Content: before.Content, Outputs: before.Outputs}
	log, err := e.openLog(d.Instance)
	if err != nil {
		return e.reported(d.Instance, err)
	}
	defer func() { _ = log.Close() }()
	var outputs map[string]string
	err = e.attempts(d.Instance, &record, func() (err error) {
		outputs, err = e.attempt(d, log)
		return err
	})
	record.Ended = e.Now()
	if err == nil {
		record.Status, record.Content, record.Outputs = state.Succeeded, &d.Content, outputs
		if err := store.Put(d.ID, record); err != nil {
			return e.reported(d.Instance, err)
		}
		e.report(d.Instance, true, false, "succeeded after %s", record.Ended.Sub(record.Started).Round(time.Second))
		return nil
	}
	record.Status, record.Error = state.Failed, err.Error()
	if e.ctx.Err() != nil {
		record.Error = "interrupted: " + record.Error
		return errors.Join(e.reported(d.Instance, err), store.Put(d.ID, record))
	}
	if d.Step.Rollback && before.Content != nil {
		return e.rollback(d, store, record, log, err)
	}
	return errors.Join(e.reported(d.Instance, err), store.Put(d.ID, record))
}

// attempts calls attempt, and repeats it after errors of the classes that the step names. It stores the record before each attempt.
func (e *run) attempts(instance *plan.Instance, record *state.Record, attempt func() error) error {
	last, pause := 1, time.Duration(0)
	var classes []string
	if retry := instance.Step.Retry; retry != nil {
		last, pause, classes = retry.Attempts, time.Duration(retry.Pause), retry.Errors
	}
	pauses := backoff.New(pause, 10*pause)
	for {
		record.Attempt++
		if err := e.StoreOf(instance).Put(instance.ID, *record); err != nil {
			return err
		}
		e.report(instance, false, false, "%s%s", record.Status, ofAttempts(record.Attempt, last))
		err := attempt()
		if err == nil {
			return nil
		}
		class := string(action.ClassOf(err))
		if e.ctx.Err() != nil || record.Attempt >= last || !slices.Contains(classes, class) {
			return err
		}
		e.report(instance, false, false, "attempt %d failed (%s), retrying: %s", record.Attempt, class, err)
		if pauses.Wait(e.ctx) != nil {
			return err
		}
	}
}

func ofAttempts(attempt, last int) string {
	if last == 1 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d of %d)", attempt, last)
}

// attempt runs the action once, checks its outputs, and then the gates.
func (e *run) attempt(d plan.Decision, log io.Writer) (map[string]string, error) {
	with, gates, err := d.Arguments(d.Content.Inputs, e.Planner.SecretsDir)
	if err != nil {
		return nil, err
	}
	request := action.Request{Step: d.ID, Target: d.Target, With: with, Outputs: d.Step.Outputs, Root: e.Planner.Root, Log: log}
	ctx, cancel := context.WithTimeout(e.ctx, time.Duration(d.Step.Timeout))
	outputs, err := e.Planner.Actions[d.Step.Action].Run(ctx, request)
	cancel()
	if err == nil {
		err = checkOutputs(d.Step.Outputs, outputs)
	}
	for _, gate := range gates {
		if err != nil {
			break
		}
		e.report(d.Instance, false, false, "waiting for the gate %s", gate.Name)
		err = e.Gates.Check(e.ctx, gate, request)
	}
	return outputs, err
}

// checkOutputs checks that an action returned exactly the outputs of its step, and no secret.
func checkOutputs(names []string, outputs map[string]string) error {
	for _, name := range names {
		if _, found := outputs[name]; !found {
			return fmt.Errorf("the action did not return the output %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the action returned the output %s, which the step does not name", name)
		}
		if schema.LooksLikeSecret(outputs[name]) {
			return fmt.Errorf("the output %s has the form of a secret; store it in a vault", name)
		}
	}
	return nil
}

// rollback brings a failed step back to its last success.
func (e *run) rollback(d plan.Decision, store Store, record state.Record, log io.Writer, cause error) error {
	record.Status, record.Ended = state.RollingBack, time.Time{}
	if err := store.Put(d.ID, record); err != nil {
		return e.reported(d.Instance, errors.Join(cause, err))
	}
	e.report(d.Instance, false, true, "failed, rolling back: %s", cause)
	err := e.rollBackTo(d, *record.Content, record.Outputs, log)
	record.Ended, record.Status = e.Now(), state.RolledBack
	if err != nil {
		record.Status = state.RollbackFailed
		cause = fmt.Errorf("%w; the rollback failed too: %w", cause, err)
		record.Error = cause.Error()
		e.report(d.Instance, true, true, "the rollback failed: %s", err)
	} else {
		e.report(d.Instance, true, true, "rolled back to its last success: %s", cause)
	}
	return errors.Join(cause, store.Put(d.ID, record))
}

func (e *run) rollBackTo(d plan.Decision, content state.Content, last map[string]string, log io.Writer) error {
	rollbacker, able := e.Planner.Actions[d.Step.Action].(action.Rollbacker)
	if !able {
		return fmt.Errorf("the action %s has no rollback", d.Step.Action)
	}
	inputs := maps.Clone(content.Inputs)
	for name := range d.Step.Inputs {
		if _, known := inputs[name]; !known {
			return fmt.Errorf("the last success had no input %s", name)
		}
	}
	with, _, err := d.Arguments(inputs, e.Planner.SecretsDir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Duration(d.Step.Timeout))
	defer cancel()
	return rollbacker.Rollback(ctx, action.Request{Step: d.ID, Target: d.Target, With: with, Outputs: d.Step.Outputs, Last: last, Root: e.Planner.Root, Log: log})
}

// maxLog is the largest log of a step.
const maxLog = 4 << 20

// openLog creates the log of a step. The log of its previous run is replaced.
func (e *run) openLog(instance *plan.Instance) (io.WriteCloser, error) {
	name := filepath.Join(e.LogsDir, strings.ReplaceAll(instance.ID, "/", ".")+".log")
	if err := os.MkdirAll(e.LogsDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the log: %w", err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the log: %w", err)
	}
	return &boundedLog{file: f, room: maxLog}, nil
}

// boundedLog is a file that drops what exceeds its size. The standard output and error of a program write to it concurrently.
type boundedLog struct {
	mu   sync.Mutex
	file *os.File
	room int
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room > 0 {
		kept := p[:min(len(p), l.room)]
		l.room -= len(kept)
		if _, err := l.file.Write(kept); err != nil {
			return 0, err
		}
		if l.room == 0 {
			_, _ = l.file.WriteString("\n… the rest is not kept\n")
		}
	}
	return len(p), nil
}

func (l *boundedLog) Close() error { return l.file.Close() }
