package maestrotest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// upgrades is the simulated state of releases.
type upgrades struct {
	// runs are the running images, by namespace of a HostedCluster or namespace/name of a NodePool.
	runs map[string]string
	// met counts the reconciliations of an upgrade, by name and image. An upgrade is complete after slow of them.
	met  map[string]int
	slow int
	// held keeps upgrades from completing. stubborn makes clusters report that they are not ready for another minor version.
	held, stubborn bool
	// moving are the control planes in an incomplete upgrade, and most is their maximum number at the same time.
	moving   map[string]bool
	most     int
	complain []string
	// goes are the desired images of control planes, and arrived are the components that run them before the others.
	goes    map[string]string
	arrived map[string]bool
}

func newUpgrades() upgrades {
	return upgrades{runs: map[string]string{}, met: map[string]int{}, slow: 1, moving: map[string]bool{}, goes: map[string]string{}, arrived: map[string]bool{}}
}

// components are the components of a simulated control plane, and whether they wait for the API server.
var components = map[string]bool{"etcd": false, "kube-apiserver": false, "kube-controller-manager": true, "kube-scheduler": true}

// CompleteComponents completes the rollout of components while upgrades are held. Server.Touch reports it.
func (h *HyperShift) CompleteComponents(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.arrived[name] = true
	}
}

// component simulates one component of a control plane. Components that do not exist get no status. It is called again until
// the control plane has completed its upgrade.
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

// HoldUpgrades keeps upgrades from completing until HoldUpgrades(false) and Server.Touch.
func (h *HyperShift) HoldUpgrades(held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = held
}

// SlowUpgrades sets the number of reconciliations that each upgrade takes.
func (h *HyperShift) SlowUpgrades(reconciliations int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = reconciliations
}

// BlockMinorUpgrades makes clusters report that they are not ready for another minor version. Server.Touch reports it.
func (h *HyperShift) BlockMinorUpgrades(stubborn bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stubborn = stubborn
}

// MaxConcurrentUpgrades returns the maximum number of control planes that were in an upgrade at the same time.
func (h *HyperShift) MaxConcurrentUpgrades() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// Violations returns the requests that HyperShift would reject: a lower version, a skipped minor version, a minor version that
// the cluster is not ready for, and nodes that are newer than their control plane.
func (h *HyperShift) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.complain)
}

func conditionStatus(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func versionNumber(version string) int {
	n := 0
	for part := range strings.SplitSeq(version, ".") {
		i, _ := strconv.Atoi(part)
		n = n*1000 + i
	}
	return n
}

// upgradeCluster simulates the version history of a control plane.
func (h *HyperShift) upgradeCluster(object Object) (history []any, again bool) {
	name := object["metadata"].(Object)["namespace"].(string)
	image := object["spec"].(Object)["release"].(Object)["image"].(string)
	entry := func(image, state string) Object {
		return Object{"state": state, "image": image, "version": h.versions[image]}
	}
	runs := h.runs[name]
	h.goes[name] = image
	from, to := versionNumber(h.versions[runs]), versionNumber(h.versions[image])
	forced := object["metadata"].(Object)["annotations"].(Object)["hypershift.openshift.io/force-upgrade-to"] == image
	switch {
	case runs == "" || runs == image:
		h.runs[name] = image
		return []any{entry(image, "Completed")}, false
	case to < from:
		h.complain = append(h.complain, fmt.Sprintf("%s must not be downgraded from %s to %s", name, h.versions[runs], h.versions[image]))
		return []any{entry(runs, "Completed")}, false
	case to/1000-from/1000 > 1:
		h.complain = append(h.complain, fmt.Sprintf("%s must not skip minor versions from %s to %s", name, h.versions[runs], h.versions[image]))
	case to/1000 != from/1000 && h.stubborn && !forced:
		h.complain = append(h.complain, fmt.Sprintf("%s is not ready for the upgrade from %s to %s", name, h.versions[runs], h.versions[image]))
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

// upgradePool simulates the rollout of a node pool.
func (h *HyperShift) upgradePool(object Object) (version string, again bool) {
	metadata := object["metadata"].(Object)
	name := metadata["namespace"].(string) + "/" + metadata["name"].(string)
	image := object["spec"].(Object)["release"].(Object)["image"].(string)
	runs := h.runs[name]
	if controlPlane := h.runs[metadata["namespace"].(string)]; controlPlane != "" && versionNumber(h.versions[image]) > versionNumber(h.versions[controlPlane]) {
		h.complain = append(h.complain, fmt.Sprintf("%s must not run %s with a control plane of %s", name, h.versions[image], h.versions[controlPlane]))
	}
	switch {
	case runs == "" || runs == image || h.met[name+image] > 0 && !h.held:
		h.runs[name] = image
		return h.versions[image], false
	case versionNumber(h.versions[image]) < versionNumber(h.versions[runs]):
		h.complain = append(h.complain, fmt.Sprintf("%s must not be downgraded from %s to %s", name, h.versions[runs], h.versions[image]))
	}
	h.met[name+image]++
	return h.versions[runs], true
}
