// Package demand finds out how many nodes the pods of a hosted cluster ask for, as the cluster autoscaler does: a Follower
// knows the pods of clusters in which a node pool autoscales, and Place puts them onto nodes of the pools that may have
// them, in thought. Nothing here schedules a pod. Of a pod only what decides on its place is kept.
package demand

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pod is a pod that runs or wants to.
type Pod struct {
	// Name is namespace/name.
	Name string
	// Node is where it is bound to; empty when it waits for a place.
	Node string
	// MilliCPU and Bytes are what it requests.
	MilliCPU, Bytes int64
	Selector        map[string]string
	Tolerations     []corev1.Toleration
	Priority        int32
	// Daemon: one runs on every node, and no node is made for it.
	Daemon bool
}

// Pool is a node pool that autoscales.
type Pool struct {
	Name     string
	Min, Max int
	// Nodes are those it has. Labels and Taints are those of each.
	Nodes  []string
	Labels map[string]string
	Taints []corev1.Taint
	// Allocatable is what pods can have of one node.
	Allocatable corev1.ResourceList
}

// takes says whether a pod may run on the pool's nodes.
func (p *Pool) takes(pod *Pod) bool {
	for key, value := range pod.Selector {
		if p.Labels[key] != value {
			return false
		}
	}
	for i := range p.Taints {
		taint := &p.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			return false
		}
	}
	return true
}

func tolerates(t corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	if t.Operator == corev1.TolerationOpExists {
		return true
	}
	return t.Key != "" && t.Value == taint.Value
}

// bin is a node while pods are placed.
type bin struct {
	cpu, memory, pods int64
	used              bool
}

func (b *bin) place(pod *Pod) {
	b.cpu -= pod.MilliCPU
	b.memory -= pod.Bytes
	b.pods--
	b.used = true
}

func (b *bin) fits(pod *Pod) bool {
	return b.cpu >= pod.MilliCPU && b.memory >= pod.Bytes && b.pods > 0
}

// Place says how many nodes each pool should have, by name: at least Min, and as many as hold the pods that are bound to its
// nodes and those that wait and that it may take, first fit, in the order of the pools' names. Pods below the priority
// threshold are not worth a node. When room is limited, more nodes than the pools have are added up to room only.
func Place(pools []Pool, pods []Pod, threshold int32, room int) map[string]int {
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	bins := map[string][]*bin{}
	owner := map[string]*bin{}
	fresh := func(p *Pool) *bin {
		return &bin{cpu: p.Allocatable.Cpu().MilliValue(), memory: p.Allocatable.Memory().Value(), pods: p.Allocatable.Pods().Value()}
	}
	for i := range pools {
		p := &pools[i]
		for _, name := range p.Nodes {
			b := fresh(p)
			owner[name] = b
			bins[p.Name] = append(bins[p.Name], b)
		}
		// The nodes it gets in any case can be counted on.
		for len(bins[p.Name]) < p.Min {
			bins[p.Name] = append(bins[p.Name], fresh(p))
		}
	}
	waiting := make([]Pod, 0, len(pods))
	for i := range pods {
		pod := &pods[i]
		switch b := owner[pod.Node]; {
		case pod.Daemon:
			if b != nil {
				b.cpu, b.memory, b.pods = b.cpu-pod.MilliCPU, b.memory-pod.Bytes, b.pods-1
			}
		case pod.Priority < threshold:
		case b != nil:
			b.place(pod)
		case pod.Node == "":
			waiting = append(waiting, *pod)
		}
	}
	// The largest first, so that few nodes do; names make it the same every time.
	slices.SortFunc(waiting, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.MilliCPU, a.MilliCPU), cmp.Compare(a.Name, b.Name))
	})
	for i := range waiting {
		room -= placeWaiting(pools, bins, fresh, &waiting[i], room)
	}
	wanted := map[string]int{}
	for i := range pools {
		p := &pools[i]
		used := 0
		for _, b := range bins[p.Name] {
			if b.used {
				used++
			}
		}
		wanted[p.Name] = min(max(used, p.Min), max(p.Max, p.Min))
	}
	return wanted
}

// placeWaiting puts a pod onto the first node with room, or onto a new one; it returns how many were added.
func placeWaiting(pools []Pool, bins map[string][]*bin, fresh func(*Pool) *bin, pod *Pod, room int) int {
	for i := range pools {
		if !pools[i].takes(pod) {
			continue
		}
		for _, b := range bins[pools[i].Name] {
			if b.fits(pod) {
				b.place(pod)
				return 0
			}
		}
	}
	if room <= 0 {
		return 0
	}
	for i := range pools {
		p := &pools[i]
		if b := fresh(p); p.takes(pod) && len(bins[p.Name]) < p.Max && b.fits(pod) {
			b.place(pod)
			bins[p.Name] = append(bins[p.Name], b)
			return 1
		}
	}
	return 0
}
