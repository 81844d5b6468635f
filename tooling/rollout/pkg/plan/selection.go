package plan

import (
	"fmt"
	"strings"
)

// Select returns the instances that names name. A name is GROUP, which includes the children of the group, GROUP/STEP, or one of them for a
// single stamp: GROUP@STAMP, GROUP@STAMP/STEP.
func Select(instances []*Instance, names []string) ([]*Instance, error) {
	var selected []*Instance
	matched := map[string]bool{}
	for _, instance := range instances {
		found := false
		for _, name := range names {
			if instance.matches(name) {
				matched[name], found = true, true
			}
		}
		if found {
			selected = append(selected, instance)
		}
	}
	for _, name := range names {
		if !matched[name] {
			return nil, fmt.Errorf("%s: the region has no group and no step of this name", name)
		}
	}
	return selected, nil
}

// matches reports whether a name names the instance.
func (i *Instance) matches(name string) bool {
	if strings.Contains(name, "/") {
		return name == i.ID || name == i.Step.ID()
	}
	group, _, _ := strings.Cut(i.ID, "/")
	stamp := strings.TrimPrefix(group, i.Step.Group.Name) // @STAMP, or empty
	for g := i.Step.Group; g != nil; g = g.Parent {
		if name == g.Name || name == g.Name+stamp {
			return true
		}
	}
	return false
}
