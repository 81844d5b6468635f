package maestrotest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// upgrades is what HyperShift remembers of releases: what runs, by the HostedCluster's or NodePool's name.
type upgrades struct {
	runs map[string]string // images
	// met counts the looks at an upgrade, by name and image: that after slow of them finds it done.
	met  map[string]int
	slow int
	// held keeps upgrades from being done, stubborn has clusters say that they are not ready for another minor version.
	held, stubborn bool
	// moving is how many control planes were seen in an upgrade that is not done, most the most of them at once.
	moving   map[string]bool
	most     int
	complain []string
	// goes is the image that a control plane was last told to run, and arrived are the components that run it before the rest.
	goes    map[string]string
	arrived map[string]bool
}

func newUpgrades() upgrades {
	return upgrades{runs: map[string]string{}, met: map[string]int{}, slow: 1, moving: map[string]bool{}, goes: map[string]string{}, arrived: map[string]bool{}}
}

// components are those that control planes have here, and whether they wait for the API server.
var components = map[string]bool{"etcd": false, "kube-apiserver": false, "kube-controller-manager": true, "kube-scheduler": true}

// Arrive has components of control planes run what these were told to run, while upgrades are held; Server.Touch has it reported.
func (h *HyperShift) Arrive(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.arrived[name] = true
	}
}

// component plays one component of a control plane; those that there are none of stay without a status. It is looked at again
// until the control plane has arrived.
func (h *HyperShift) component(object Object) (again bool) {
	metadata := object["metadata"].(Object)
	name, controlPlane := metadata["name"].(string), metadata["namespace"].(string)
	dependent, exists := components[name]
	if !exists {
		return false
	}
	for cluster, image := range h.goes {
		if !strings.HasPrefix(controlPlane, cluster+"-") {
			continue
		}
		runs := h.runs[cluster]
		switch {
		case runs == image || h.arrived[name]:
			object["status"] = Object{"version": h.versions[image], "conditions": conditions("RolloutComplete", "True", "AsExpected")}
		case dependent && !h.arrived["kube-apiserver"]:
			object["status"] = Object{"version": h.versions[runs], "conditions": conditions("RolloutComplete", "False", "WaitingForDependencies")}
		default:
			object["status"] = Object{"version": h.versions[runs], "conditions": conditions("RolloutComplete", "False", "WaitingForRolloutComplete")}
		}
		return runs != image && !h.held
	}
	return false
}

// HoldUpgrades keeps upgrades that begin from being done, until it is called with false and Server.Touch after that.
func (h *HyperShift) HoldUpgrades(held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = held
}

// SlowUpgrades has each upgrade take so many looks.
func (h *HyperShift) SlowUpgrades(looks int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = looks
}

// Stubborn has clusters say that they are not ready for another minor version; Server.Touch has it reported.
func (h *HyperShift) Stubborn(stubborn bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stubborn = stubborn
}

// MostAtOnce is how many control planes were in an upgrade at the same time, at most.
func (h *HyperShift) MostAtOnce() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// Complaints are what was asked for that HyperShift would not do: a version that is lowered, a minor version that is skipped
// or not agreed to, nodes that are newer than their control plane.
func (h *HyperShift) Complaints() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.complain)
}

func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func number(version string) int {
	n := 0
	for part := range strings.SplitSeq(version, ".") {
		i, _ := strconv.Atoi(part)
		n = n*1000 + i
	}
	return n
}

// upgradeCluster plays the version history of a control plane.
func (h *HyperShift) upgradeCluster(object Object) (history []any, again bool) {
	name := object["metadata"].(Object)["namespace"].(string)
	image := object["spec"].(Object)["release"].(Object)["image"].(string)
	entry := func(image, state string) Object {
		return Object{"state": state, "image": image, "version": h.versions[image]}
	}
	runs := h.runs[name]
	h.goes[name] = image
	from, to := number(h.versions[runs]), number(h.versions[image])
	forced := object["metadata"].(Object)["annotations"].(Object)["hypershift.openshift.io/force-upgrade-to"] == image
	switch {
	case runs == "" || runs == image:
		h.runs[name] = image
		return []any{entry(image, "Completed")}, false
	case to < from:
		h.complain = append(h.complain, fmt.Sprintf("%s is to go down from %s to %s", name, h.versions[runs], h.versions[image]))
		return []any{entry(runs, "Completed")}, false
	case to/1000-from/1000 > 1:
		h.complain = append(h.complain, fmt.Sprintf("%s is to skip from %s to %s", name, h.versions[runs], h.versions[image]))
	case to/1000 != from/1000 && h.stubborn && !forced:
		h.complain = append(h.complain, fmt.Sprintf("%s is not ready to go from %s to %s", name, h.versions[runs], h.versions[image]))
		return []any{entry(runs, "Completed")}, false
	}
	h.moving[name] = true
	h.most = max(h.most, len(h.moving))
	if h.met[name+image] >= h.slow && !h.held {
		h.runs[name] = image
		delete(h.moving, name)
		return []any{entry(image, "Completed"), entry(runs, "Completed")}, false
	}
	h.met[name+image]++
	return []any{entry(image, "Partial"), entry(runs, "Completed")}, true
}

// upgradePool plays the rollout of a node pool.
func (h *HyperShift) upgradePool(object Object) (version string, again bool) {
	metadata := object["metadata"].(Object)
	name := metadata["namespace"].(string) + "/" + metadata["name"].(string)
	image := object["spec"].(Object)["release"].(Object)["image"].(string)
	runs := h.runs[name]
	if controlPlane := h.runs[metadata["namespace"].(string)]; controlPlane != "" && number(h.versions[image]) > number(h.versions[controlPlane]) {
		h.complain = append(h.complain, fmt.Sprintf("%s is to run %s with a control plane of %s", name, h.versions[image], h.versions[controlPlane]))
	}
	switch {
	case runs == "" || runs == image || h.met[name+image] > 0 && !h.held:
		h.runs[name] = image
		return h.versions[image], false
	case number(h.versions[image]) < number(h.versions[runs]):
		h.complain = append(h.complain, fmt.Sprintf("%s is to go down from %s to %s", name, h.versions[runs], h.versions[image]))
	}
	h.met[name+image]++
	return h.versions[runs], true
}
