package plan

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// Verdict is what a rollout does with a step.
type Verdict string

// The verdicts.
const (
	// Run means that the step runs.
	Run Verdict = "run"
	// MayRun means that the step runs if an output of an earlier step changes.
	MayRun Verdict = "may run"
	// Skip means that the step has succeeded and nothing has changed since.
	Skip Verdict = "up to date"
	// LeftOut means that the environment does not have the step.
	LeftOut Verdict = "left out"
	// Blocked means that the step cannot run. A rollout with such a step does not start.
	Blocked Verdict = "blocked"
)

// Decision is the verdict about one instance.
type Decision struct {
	*Instance
	Verdict Verdict
	// Reasons explain the verdict; empty for Skip.
	Reasons []string
	// Content is what the instance depends on. Its inputs are complete unless the verdict is MayRun or Blocked, or a reason of Run is
	// an input that another step returns.
	Content state.Content
}

// Planner decides about instances.
type Planner struct {
	// Root is the folder of the checkout.
	Root    string
	Actions map[string]action.Action
	// SecretsDir has the files of secrets; empty if there are none.
	SecretsDir string
	// Record returns the record of an instance, and whether it has one.
	Record func(*Instance) (state.Record, bool)
}

// All decides about all instances, which are in topological order.
func (p *Planner) All(instances []*Instance) ([]Decision, error) {
	verdicts := map[*Instance]Verdict{}
	var decisions []Decision
	for _, instance := range instances {
		d, err := p.Decide(instance, func(producer *Instance) (map[string]string, bool) {
			if verdicts[producer] != Skip {
				return nil, false
			}
			record, found := p.Record(producer)
			return record.Outputs, found
		})
		if err != nil {
			return nil, err
		}
		verdicts[instance] = d.Verdict
		decisions = append(decisions, d)
	}
	return decisions, nil
}

// Decide decides about one instance. outputs returns the outputs of an instance, or false if it runs later.
func (p *Planner) Decide(instance *Instance, outputs func(*Instance) (map[string]string, bool)) (Decision, error) {
	d := Decision{Instance: instance}
	if instance.LeftOut {
		d.Verdict, d.Reasons = LeftOut, []string{"the key " + leftOutKey + " names it"}
		return d, nil
	}
	inputs, waiting, lacking := instance.inputs(outputs)
	d.Content.Inputs = inputs
	for _, m := range lacking {
		d.block(m.reason)
	}
	if p.Actions[instance.Step.Action] == nil {
		d.block(fmt.Sprintf("the action %s does not exist in this program yet", instance.Step.Action))
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if instance.Step.Inputs[name].Secret != "" {
			p.secret(&d, name, inputs[name])
		}
	}
	var err error
	if d.Content.Definition, err = definitionHash(instance.Step); err != nil {
		return d, err
	}
	if d.Content.Files, err = fileHashes(p.Root, instance.Step.Files); err != nil {
		return d, fmt.Errorf("%s: %w", instance.ID, err)
	}
	if d.Verdict == Blocked {
		return d, nil
	}
	if err := p.actionContent(&d); err != nil || d.Verdict == Blocked {
		return d, err
	}
	record, found := p.Record(instance)
	d.judge(record, found, waiting)
	return d, nil
}

// actionContent adds what the action reads besides inputs and files. It blocks a step whose action cannot read that.
func (p *Planner) actionContent(d *Decision) error {
	reader, able := p.Actions[d.Step.Action].(action.Contenter)
	if !able {
		return nil
	}
	r, err := p.Request(*d)
	if err != nil {
		return err
	}
	d.Content.Action, err = reader.Content(r)
	var problems document.Problems
	switch {
	case errors.As(err, &problems):
		for _, problem := range problems {
			d.block(problem.Error())
		}
	case err != nil:
		d.block(err.Error())
	}
	return nil
}

// Request returns the request for the action of a decision, without a log that is kept. References to unknown inputs are empty.
func (p *Planner) Request(d Decision) (action.Request, error) {
	with, _, err := d.Arguments(d.Content.Inputs, p.SecretsDir)
	return action.Request{Step: d.ID, Target: d.Target, With: with, Outputs: d.Step.Outputs, Root: p.Root, Log: io.Discard}, err
}

// Complete reports whether all inputs of the decision are known.
func (d Decision) Complete() bool { return len(d.Content.Inputs) == len(d.Step.Inputs) }

// secret blocks a step whose secret has no file.
func (p *Planner) secret(d *Decision, name, reference string) {
	if p.SecretsDir == "" {
		d.block(fmt.Sprintf("the input %s is a secret, and no folder with secrets is set", name))
		return
	}
	if info, err := os.Stat(filepath.Join(p.SecretsDir, filepath.FromSlash(reference))); err != nil || !info.Mode().IsRegular() {
		d.block(fmt.Sprintf("the input %s needs the secret %s, which has no file in the folder with secrets", name, reference))
	}
}

func (d *Decision) block(reason string) {
	d.Verdict = Blocked
	d.Reasons = append(d.Reasons, reason)
}

// judge compares the content with that of the last success.
func (d *Decision) judge(record state.Record, found bool, waiting []missing) {
	d.Verdict = Run
	switch {
	case !found:
		d.Reasons = []string{"it has not run yet"}
		return
	case record.Status == state.Running:
		d.Reasons = []string{"the last run was interrupted"}
		return
	case record.Status == state.Deleting:
		d.Reasons = []string{"its deletion has begun and has not ended"}
		return
	case record.Status == state.RollingBack:
		d.Reasons = []string{"the last run failed, and its rollback was interrupted"}
		return
	case record.Status != state.Succeeded || record.Content == nil:
		d.Reasons = []string{"the last run failed: " + record.Error}
		return
	}
	before := *record.Content
	if len(waiting) > 0 { // compare the rest
		before.Inputs = maps.Clone(before.Inputs)
		maps.DeleteFunc(before.Inputs, func(name, _ string) bool { _, known := d.Content.Inputs[name]; return !known })
	}
	if d.Reasons = changes(&before, d.Content); len(d.Reasons) > 0 {
		return
	}
	d.Verdict = Skip
	for _, m := range waiting {
		d.Verdict = MayRun
		d.Reasons = append(d.Reasons, m.reason)
	}
}

// Loss is a change that drops a data store or deletes a cluster.
type Loss struct{ Target, Key, Before, After string }

// Name returns TARGET:KEY, or TARGET if the whole target disappears.
func (l Loss) Name() string {
	if l.Key == "" {
		return l.Target
	}
	return l.Target + ":" + l.Key
}

// String describes the loss.
func (l Loss) String() string {
	if l.Key == "" {
		return l.Target + " disappears with its data stores and clusters"
	}
	return fmt.Sprintf("%s: %s changes from %s to %s", l.Target, l.Key, l.Before, l.After)
}

// Stores returns the keys of data stores and clusters of a region and its stamps, with their values, by target.
func Stores(configuration *deployment.Configuration, instances []*Instance) map[string]map[string]string {
	stores := map[string]map[string]string{}
	for _, instance := range instances {
		if name := instance.Target.String(); instance.Target.Level() >= layer.Region && stores[name] == nil {
			stores[name] = configuration.DataStores(instance.Target, instance.Values)
		}
	}
	return stores
}

// Losses compares the data stores and clusters of the last rollout with those of the next.
func Losses(before, after map[string]map[string]string) []Loss {
	var losses []Loss
	for _, target := range slices.Sorted(maps.Keys(before)) {
		now, exists := after[target]
		if !exists {
			losses = append(losses, Loss{Target: target})
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(before[target])) {
			if value, set := now[key]; !set {
				losses = append(losses, Loss{target, key, before[target][key], "nothing"})
			} else if value != before[target][key] {
				losses = append(losses, Loss{target, key, before[target][key], value})
			}
		}
	}
	return losses
}
