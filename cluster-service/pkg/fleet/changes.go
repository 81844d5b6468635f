package fleet

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// maxFieldValue is the number of characters of a field's value that a FieldChange has.
const maxFieldValue = 2048

// Changes returns what differs between two states of an aggregate: generations with their fields, phases, and the statuses and reasons of
// conditions. before is empty for a new cluster.
func Changes(before, after *ClusterAggregate, now time.Time) []*csv1.ClusterChange {
	c := changes{now: now}
	if after.Cluster != nil {
		c.add(versionOfCluster(before.Cluster), versionOfCluster(after.Cluster))
	}
	for _, p := range after.Pools {
		c.add(versionOfPool(before.Pool(p.UID)), versionOfPool(p))
	}
	for _, a := range after.ExternalAuths {
		c.add(versionOfAuth(before.ExternalAuthByUID(a.UID)), versionOfAuth(a))
	}
	return c.found
}

// version is what Changes compares of a resource. The zero value is a resource that did not exist.
type version struct {
	resourceID string
	generation int64
	spec       proto.Message
	phase      string
	conditions []*csv1.Condition
}

func versionOfCluster(c *Cluster) version {
	if c == nil {
		return version{}
	}
	return version{c.ResourceID, c.Generation, c.Spec, c.Status.GetPhase().String(), c.Status.GetConditions()}
}

func versionOfPool(p *NodePool) version {
	if p == nil {
		return version{}
	}
	return version{p.ResourceID, p.Generation, p.Spec, p.Status.GetPhase().String(), p.Status.GetConditions()}
}

func versionOfAuth(a *ExternalAuth) version {
	if a == nil {
		return version{}
	}
	return version{a.ResourceID, a.Generation, a.Spec, a.Status.GetPhase().String(), a.Status.GetConditions()}
}

// changes collects the changes of a transaction.
type changes struct {
	now   time.Time
	found []*csv1.ClusterChange
}

// add appends what differs between two versions of a resource.
func (c *changes) add(before, after version) {
	one := func() *csv1.ClusterChange {
		change := &csv1.ClusterChange{Time: timestamp(c.now), ResourceId: after.resourceID}
		c.found = append(c.found, change)
		return change
	}
	if before.generation != after.generation {
		change := &csv1.DesiredStateChange{Generation: after.generation}
		if before.generation > 0 {
			change.Fields = fieldChanges(before.spec, after.spec)
		}
		one().Change = &csv1.ClusterChange_DesiredState{DesiredState: change}
	}
	if before.phase != after.phase {
		one().Change = &csv1.ClusterChange_Phase{Phase: &csv1.PhaseChange{Before: before.phase, After: after.phase}}
	}
	for _, condition := range after.conditions {
		old := findCondition(before.conditions, condition.GetType())
		if old.GetStatus() != condition.GetStatus() || old.GetReason() != condition.GetReason() {
			one().Change = &csv1.ClusterChange_Condition{Condition: &csv1.ConditionChange{Condition: proto.CloneOf(condition), Before: old.GetStatus()}}
		}
	}
}

// findCondition returns the condition of a type; nil if there is none.
func findCondition(conditions []*csv1.Condition, name string) *csv1.Condition {
	i := slices.IndexFunc(conditions, func(c *csv1.Condition) bool { return c.GetType() == name })
	if i < 0 {
		return nil
	}
	return conditions[i]
}

// fieldChanges returns the fields that differ between two messages of one type, in order of path.
func fieldChanges(before, after proto.Message) []*csv1.FieldChange {
	old, current := fields(before), fields(after)
	all := maps.Clone(old)
	maps.Copy(all, current)
	var found []*csv1.FieldChange
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if old[path] != current[path] {
			found = append(found, &csv1.FieldChange{Path: path, Before: shortened(old[path]), After: shortened(current[path])})
		}
	}
	return found
}

// fields returns the JSON of each field of a message by path. Lists and empty objects are one field.
func fields(m proto.Message) map[string]string {
	all := map[string]string{}
	text, _ := protojson.Marshal(m) // fails for invalid UTF-8 only, which gRPC rejects
	for name, value := range object(text) {
		addFields(all, name, value)
	}
	return all
}

// addFields adds the fields of a value with a path.
func addFields(all map[string]string, path string, value json.RawMessage) {
	members := object(value)
	for name, member := range members {
		addFields(all, path+"."+name, member)
	}
	if len(members) == 0 {
		var text bytes.Buffer
		_ = json.Compact(&text, value) // protojson formats differently in each process
		all[path] = text.String()
	}
}

// object returns the members of a JSON object; none if the value is not an object.
func object(value json.RawMessage) (members map[string]json.RawMessage) {
	_ = json.Unmarshal(value, &members)
	return members
}

// shortened cuts a long value.
func shortened(value string) string {
	if runes := []rune(value); len(runes) > maxFieldValue {
		return string(runes[:maxFieldValue]) + "…"
	}
	return value
}
