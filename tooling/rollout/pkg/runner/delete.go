package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// ErrDeletionFailed means that what a step has deployed could not be deleted.
var ErrDeletionFailed = errors.New("the deletion failed")

// CheckDeletionGates checks the deletion gates of all instances, and writes the open ones to out. The error has all others.
func (r *Runner) CheckDeletionGates(ctx context.Context, instances []*plan.Instance, out io.Writer) error {
	return r.forEachDeletion(ctx, instances, func(d plan.Decision) error { return r.deletionGates(ctx, d, out) })
}

// PreviewDeletion writes to out what Delete would delete. The error has all deletions that are not permitted.
func (r *Runner) PreviewDeletion(ctx context.Context, instances []*plan.Instance, out io.Writer) error {
	return r.forEachDeletion(ctx, instances, func(d plan.Decision) error { return r.previewDeletion(ctx, d, out) })
}

// forEachDeletion calls do with the decision of each instance, without those that the environment leaves out, and joins the errors.
func (r *Runner) forEachDeletion(ctx context.Context, instances []*plan.Instance, do func(plan.Decision) error) error {
	var failures []error
	for _, instance := range instances {
		d, err := r.decideDeletion(instance)
		if err == nil && d.Verdict != plan.LeftOut {
			err = do(d)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", instance.ID, err))
		}
	}
	return errors.Join(failures...)
}

// Delete deletes what the instances have deployed, and forgets the instances. It begins with the last one, because an instance needs those before it, and
// ends at the first failure. A deletion that failed or was killed is completed by another one. It returns the IDs of the instances that it has deleted.
func (r *Runner) Delete(ctx context.Context, instances []*plan.Instance) (deleted []string, err error) {
	e := &run{Runner: r, ctx: ctx}
	for _, instance := range slices.Backward(instances) {
		if ctx.Err() != nil {
			return deleted, ctx.Err()
		}
		if err := e.delete(instance); err != nil {
			if ctx.Err() != nil {
				return deleted, ctx.Err()
			}
			return deleted, fmt.Errorf("%w: %s", ErrDeletionFailed, instance.ID)
		}
		deleted = append(deleted, instance.ID)
	}
	return deleted, nil
}

// delete deletes what one instance has deployed.
func (e *run) delete(instance *plan.Instance) error {
	deleter, able := e.Planner.Actions[instance.Step.Action].(action.Deleter)
	if !able {
		return e.forget(instance, "forgotten")
	}
	d, err := e.decideDeletion(instance)
	if err != nil {
		return e.reported(instance, err)
	}
	if d.Verdict == plan.LeftOut {
		return e.forget(instance, "forgotten")
	}
	request, err := e.Planner.Request(d)
	if err != nil {
		return e.reported(instance, err)
	}
	log, err := e.openLog(instance)
	if err != nil {
		return e.reported(instance, err)
	}
	defer func() { _ = log.Close() }()
	request.Log = log
	record, _ := e.StoreOf(instance).Step(instance.ID)
	record = state.Record{Status: state.Deleting, Started: e.Now(), Content: record.Content, Outputs: record.Outputs}
	err = e.attempts(instance, &record, func() error {
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(instance.Step.Timeout))
		defer cancel()
		return deleter.Delete(ctx, request)
	})
	if err != nil {
		record.Ended, record.Error = e.Now(), err.Error()
		return errors.Join(e.reported(instance, err), e.StoreOf(instance).Put(instance.ID, record))
	}
	return e.forget(instance, "deleted")
}

// forget deletes the record of an instance, and reports what happened to it.
func (e *run) forget(instance *plan.Instance, happened string) error {
	if err := e.StoreOf(instance).Delete(instance.ID); err != nil {
		return e.reported(instance, err)
	}
	e.report(instance, true, false, "%s", happened)
	return nil
}

// decideDeletion returns the decision of an instance that is deleted, with all inputs.
func (r *Runner) decideDeletion(instance *plan.Instance) (plan.Decision, error) {
	d := plan.Decision{Instance: instance}
	_, able := r.Planner.Actions[instance.Step.Action].(action.Deleter)
	if !able && len(instance.Step.DeletionGates) == 0 {
		return d, nil
	}
	d, err := r.Planner.Decide(instance, r.outputs)
	switch {
	case err != nil:
		return d, err
	case d.Verdict == plan.Blocked:
		return d, errors.New(strings.Join(d.Reasons, "; "))
	case d.Verdict != plan.LeftOut && !d.Complete():
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Step.Inputs)), func(name string) bool { _, known := d.Content.Inputs[name]; return known })
		return d, fmt.Errorf("the steps that return its inputs %s have not succeeded", strings.Join(missing, ", "))
	}
	return d, nil
}

// deletionGates checks the deletion gates of an instance.
func (r *Runner) deletionGates(ctx context.Context, d plan.Decision, out io.Writer) error {
	if len(d.Step.DeletionGates) == 0 {
		return nil
	}
	gates, err := d.DeletionGates(d.Content.Inputs, r.Planner.SecretsDir)
	if err != nil {
		return err
	}
	request, err := r.Planner.Request(d)
	if err != nil {
		return err
	}
	for _, gate := range gates {
		if err := r.Gates.Check(ctx, gate, request); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: the gate %s is open\n", d.ID, gate.Name)
	}
	return nil
}

// previewDeletion writes what the action of an instance would delete.
func (r *Runner) previewDeletion(ctx context.Context, d plan.Decision, out io.Writer) error {
	deleter, able := r.Planner.Actions[d.Step.Action].(action.Deleter)
	if !able {
		return nil
	}
	request, err := r.Planner.Request(d)
	if err != nil {
		return err
	}
	return deleter.PreviewDeletion(ctx, request, prefixed{out, d.ID + ": "})
}

// prefixed writes each line after a prefix. Each Write has whole lines.
type prefixed struct {
	to     io.Writer
	prefix string
}

func (p prefixed) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if _, err := io.WriteString(p.to, p.prefix+line); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}
