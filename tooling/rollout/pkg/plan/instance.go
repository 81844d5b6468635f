// Package plan computes what a rollout of a region does: the instances of all steps, their inputs, and for each whether it runs and why.
//
// A step runs if its last run did not succeed, or if its definition, an input or a file has changed since. Planning reads files and has
// no effects.
package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// Instance is a step for one environment, region or stamp.
type Instance struct {
	// ID is GROUP/STEP, or GROUP@STAMP/STEP.
	ID   string
	Step *definition.Step
	// Target is the environment, region or stamp.
	Target layer.Target
	// Needs are the instances that must end first.
	Needs []*Instance
	// Values is the rendered configuration.
	Values *document.Node
	// LeftOut means that the environment does not have the step: it never runs, and nothing waits for it.
	LeftOut bool

	// producers are the instances of the inputs from outputs, by the name of the input.
	producers map[string]*Instance
}

// Instances returns the instances of all steps for a region, each after those that it needs.
func Instances(topology *definition.Topology, configuration *deployment.Configuration, region layer.Target) ([]*Instance, error) {
	if region.Level() != layer.Region {
		return nil, fmt.Errorf("%s is not a region: use CLOUD/ENVIRONMENT/REGION", region)
	}
	regionValues, err := configuration.Render(region)
	if err != nil {
		return nil, err
	}
	b := &builder{topology: topology, byStep: map[*definition.Step][]*Instance{}}
	b.add(definition.ScopeEnvironment, region[:layer.Environment], "", regionValues)
	if err := b.shared(configuration, region); err != nil {
		return nil, err
	}
	b.add(definition.ScopeRegion, region, "", regionValues)
	for _, stamp := range configuration.Tree.At(layer.Stamp, region) {
		values, err := configuration.Render(stamp)
		if err != nil {
			return nil, err
		}
		b.add(definition.ScopeStamp, stamp, "@"+stamp[layer.Stamp-1], values)
	}
	ordered := b.ordered()
	return ordered, leaveOut(topology, ordered, regionValues)
}

type builder struct {
	topology *definition.Topology
	byStep   map[*definition.Step][]*Instance
	all      []*Instance
}

// add creates the instances of the groups with a scope.
func (b *builder) add(scope definition.Scope, target layer.Target, suffix string, values *document.Node) {
	for _, g := range b.topology.Groups {
		if g.Scope != scope {
			continue
		}
		for _, s := range g.Steps {
			instance := &Instance{ID: g.Name + suffix + "/" + s.Name, Step: s, Target: target, Values: values, producers: map[string]*Instance{}}
			b.byStep[s] = append(b.byStep[s], instance)
			b.all = append(b.all, instance)
		}
	}
}

// shared checks that the inputs of the environment's steps have the same values in all its regions. Otherwise each region would run
// these steps again with its own values.
func (b *builder) shared(configuration *deployment.Configuration, region layer.Target) error {
	for _, other := range configuration.Tree.At(layer.Region, region[:layer.Environment]) {
		values, problems, err := configuration.Merge(other)
		if err == nil {
			err = problems.Err()
		}
		if err != nil {
			return fmt.Errorf("comparing the values that %s shares with %s: %w", region, other, err)
		}
		for _, instance := range b.all {
			for name, in := range instance.Step.Inputs {
				key := in.Configuration + in.Secret
				if key == "" {
					continue
				}
				here, there := instance.Values.Get(document.Split(key)...), values.Get(document.Split(key)...)
				if (here == nil) != (there == nil) || here != nil && textOf(here, in.Secret != "") != textOf(there, in.Secret != "") {
					return fmt.Errorf("%s: the input %s needs one value for the environment, and the key %s differs between %s and %s", instance.ID, name, key, region, other)
				}
			}
		}
	}
	return nil
}

// of returns the instances of a step that an instance of a target depends on: that of the same stamp, or all of them.
func (b *builder) of(s *definition.Step, target layer.Target) []*Instance {
	var found []*Instance
	for _, candidate := range b.byStep[s] {
		if target.Level() < layer.Stamp || candidate.Target.Level() < layer.Stamp || slices.Equal(candidate.Target, target) {
			found = append(found, candidate)
		}
	}
	return found
}

// ordered sets the dependencies and returns the instances in topological order. The definitions have no cycle.
func (b *builder) ordered() []*Instance {
	for _, instance := range b.all {
		for _, s := range b.topology.Before(instance.Step) {
			instance.Needs = append(instance.Needs, b.of(s, instance.Target)...)
		}
		for name, in := range instance.Step.Inputs {
			if in.Output != nil {
				instance.producers[name] = b.of(b.topology.Step(instance.Step.Group, in.Output.Step), instance.Target)[0]
			}
		}
	}
	var ordered []*Instance
	done := map[*Instance]bool{}
	var visit func(*Instance)
	visit = func(instance *Instance) {
		if done[instance] {
			return
		}
		done[instance] = true
		for _, need := range instance.Needs {
			visit(need)
		}
		ordered = append(ordered, instance)
	}
	for _, instance := range b.all {
		visit(instance)
	}
	return ordered
}

// missing is the value of an input that is not known yet.
type missing struct{ reason string }

// inputs returns the values of the inputs. outputs returns the outputs of an instance, or false if it runs later. A secret is
// vault/name. An input without a value is in the second result, with the reason; waiting means that another step must run first.
func (i *Instance) inputs(outputs func(*Instance) (map[string]string, bool)) (values map[string]string, waiting, lacking []missing) {
	values = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(i.Step.Inputs)) {
		in := i.Step.Inputs[name]
		switch {
		case in.Output != nil:
			known, found := outputs(i.producers[name])
			if !found {
				waiting = append(waiting, missing{fmt.Sprintf("the input %s is an output of %s, which runs first", name, i.producers[name].ID)})
				continue
			}
			values[name] = known[in.Output.Name]
		case in.Configuration != "" || in.Secret != "":
			key := in.Configuration + in.Secret
			node := i.Values.Get(document.Split(key)...)
			if node == nil {
				lacking = append(lacking, missing{fmt.Sprintf("the input %s needs the key %s, which %s does not set", name, key, i.Target)})
				continue
			}
			values[name] = textOf(node, in.Secret != "")
		default:
			values[name] = in.Value
		}
	}
	return values, waiting, lacking
}

// textOf returns a value of the configuration as text: a scalar as it is, a reference to a secret as vault/name, everything else as JSON.
func textOf(n *document.Node, secret bool) string {
	if secret {
		return fmt.Sprintf("%v/%v", n.Get("vault").Value, n.Get("secret").Value)
	}
	if n.Kind == document.Scalar {
		return fmt.Sprint(n.Value)
	}
	text, _ := json.Marshal(n.Plain()) // maps, slices and scalars can always be encoded
	return string(text)
}

// Arguments returns the parameters and gates of an instance with the values of its inputs. A secret is replaced by the path of its file.
func (i *Instance) Arguments(inputs map[string]string, secretsDir string) (map[string]any, []definition.Gate, error) {
	values := i.withSecrets(inputs, secretsDir)
	with, _ := replaceAll(i.Step.With, values).(map[string]any)
	gates, err := replaceInGates(i.Step.Gates, values)
	return with, gates, err
}

// DeletionGates returns the gates before a deletion with the values of the inputs. A secret is replaced by the path of its file.
func (i *Instance) DeletionGates(inputs map[string]string, secretsDir string) ([]definition.Gate, error) {
	return replaceInGates(i.Step.DeletionGates, i.withSecrets(inputs, secretsDir))
}

// withSecrets returns the inputs with the path of its file for each secret.
func (i *Instance) withSecrets(inputs map[string]string, secretsDir string) map[string]string {
	values := maps.Clone(inputs)
	for name, in := range i.Step.Inputs {
		if in.Secret != "" {
			values[name] = strings.TrimSuffix(secretsDir, "/") + "/" + inputs[name]
		}
	}
	return values
}

// replaceInGates replaces the references in all strings of gates.
func replaceInGates(gates []definition.Gate, values map[string]string) ([]definition.Gate, error) {
	text, err := json.Marshal(gates)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(replaceAll(plain, values)); err != nil {
		return nil, err
	}
	var replaced []definition.Gate
	return replaced, json.Unmarshal(text, &replaced)
}

// replaceAll replaces the references in all strings of a value.
func replaceAll(value any, inputs map[string]string) any {
	switch value := value.(type) {
	case string:
		return definition.Replace(value, inputs)
	case []any:
		replaced := make([]any, len(value))
		for i, item := range value {
			replaced[i] = replaceAll(item, inputs)
		}
		return replaced
	case map[string]any:
		replaced := map[string]any{}
		for name, field := range value {
			replaced[name] = replaceAll(field, inputs)
		}
		return replaced
	}
	return value
}
