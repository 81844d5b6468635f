package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// leftOutKey is the key of the configuration with the groups and steps that an environment does not have.
const leftOutKey = "pipelines.without"

// leaveOut marks the instances of the groups and steps that the configuration leaves out. It reports entries that name nothing, and steps
// that need an output of a step that is left out.
func leaveOut(topology *definition.Topology, instances []*Instance, values *document.Node) error {
	list := values.Get(document.Split(leftOutKey)...)
	if list == nil {
		return nil
	}
	var problems document.Problems
	names := map[string]bool{}
	for i, item := range list.Items {
		name := fmt.Sprint(item.Value)
		names[name] = true
		if topology.Group(name) == nil && topology.Step(nil, name) == nil {
			problems = append(problems, document.Problem{Origin: item.Origin, Key: document.Join(leftOutKey, strconv.Itoa(i)), Message: "there is no group and no step " + name})
		}
	}
	for _, instance := range instances {
		instance.LeftOut = names[instance.Step.Group.Name] || names[instance.Step.ID()]
	}
	for _, instance := range instances {
		for _, name := range slices.Sorted(maps.Keys(instance.producers)) {
			if producer := instance.producers[name]; producer.LeftOut && !instance.LeftOut {
				problems = append(problems, document.Problem{Origin: list.Origin, Key: leftOutKey,
					Message: fmt.Sprintf("leaves out %s, whose output is the input %s of %s", producer.ID, name, instance.ID)})
			}
		}
	}
	return problems.Err()
}
