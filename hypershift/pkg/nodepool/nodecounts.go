package nodepool

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pod is a pod that runs or is pending.
type Pod struct {
	// Name is namespace/name.
	Name string
	// Node is the node that it is bound to; empty while it is pending.
	Node string
	// MilliCPU and Bytes are its resource requests.
	MilliCPU, Bytes int64
	Selector        map[string]string
	Tolerations     []corev1.Toleration
	Priority        int32
	// DaemonSet is true for a pod of a DaemonSet. One runs on every node, and no node is added for it.
	DaemonSet bool
}

// autoscaledPool is an autoscaled node pool.
type autoscaledPool struct {
	Name     string
	Min, Max int
	// Nodes are the names of its nodes. Each has Labels and Taints.
	Nodes  []string
	Labels map[string]string
	Taints []corev1.Taint
	// Allocatable is the capacity of one node for pods.
	Allocatable corev1.ResourceList
}

// accepts reports whether a pod may run on the pool's nodes.
func (p *autoscaledPool) accepts(pod *Pod) bool {
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

// bin is the free capacity of a node during the simulation.
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

// nodeCounts returns the number of nodes that each pool should have, by name: at least Min, and enough for the pods
// that are bound to its nodes and for the pending pods that it accepts. Pods are placed first fit, in the order of the
// pools' names. Pods with a priority below threshold do not justify a node. maxNew bounds the number of added nodes of
// all pools.
func nodeCounts(pools []autoscaledPool, pods []Pod, threshold int32, maxNew int) map[string]int {
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(a, b autoscaledPool) int { return cmp.Compare(a.Name, b.Name) })
	bins := map[string][]*bin{}
	owner := map[string]*bin{}
	newBin := func(p *autoscaledPool) *bin {
		return &bin{cpu: p.Allocatable.Cpu().MilliValue(), memory: p.Allocatable.Memory().Value(), pods: p.Allocatable.Pods().Value()}
	}
	for i := range pools {
		p := &pools[i]
		for _, name := range p.Nodes {
			b := newBin(p)
			owner[name] = b
			bins[p.Name] = append(bins[p.Name], b)
		}
		// Nodes up to the minimum are added in any case.
		for len(bins[p.Name]) < p.Min {
			bins[p.Name] = append(bins[p.Name], newBin(p))
		}
	}
	pending := make([]Pod, 0, len(pods))
	for i := range pods {
		pod := &pods[i]
		switch b := owner[pod.Node]; {
		case pod.DaemonSet:
			if b != nil {
				b.cpu, b.memory, b.pods = b.cpu-pod.MilliCPU, b.memory-pod.Bytes, b.pods-1
			}
		case pod.Priority < threshold:
		case b != nil:
			b.place(pod)
		case pod.Node == "":
			pending = append(pending, *pod)
		}
	}
	// The largest pods first, so that few nodes suffice. Ties are broken by name, which makes the result deterministic.
	slices.SortFunc(pending, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.MilliCPU, a.MilliCPU), cmp.Compare(a.Name, b.Name))
	})
	for i := range pending {
		maxNew -= placePending(pools, bins, newBin, &pending[i], maxNew)
	}
	counts := map[string]int{}
	for i := range pools {
		p := &pools[i]
		used := 0
		for _, b := range bins[p.Name] {
			if b.used {
				used++
			}
		}
		counts[p.Name] = min(max(used, p.Min), max(p.Max, p.Min))
	}
	return counts
}

// placePending places a pod on the first node with enough capacity, or on a new node. It returns the number of added
// nodes.
func placePending(pools []autoscaledPool, bins map[string][]*bin, newBin func(*autoscaledPool) *bin, pod *Pod, maxNew int) int {
	for i := range pools {
		if !pools[i].accepts(pod) {
			continue
		}
		for _, b := range bins[pools[i].Name] {
			if b.fits(pod) {
				b.place(pod)
				return 0
			}
		}
	}
	if maxNew <= 0 {
		return 0
	}
	for i := range pools {
		p := &pools[i]
		if b := newBin(p); p.accepts(pod) && len(bins[p.Name]) < p.Max && b.fits(pod) {
			b.place(pod)
			bins[p.Name] = append(bins[p.Name], b)
			return 1
		}
	}
	return 0
}
