package nodepool

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestNodeCounts(t *testing.T) {
	allocatable := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("10")}
	pool := func(name string, minimum, maximum int, nodes ...string) autoscaledPool {
		return autoscaledPool{Name: name, Min: minimum, Max: maximum, Nodes: nodes, Labels: map[string]string{"pool": name}, Allocatable: allocatable}
	}
	pending := func(count int, change ...func(*Pod)) []Pod {
		var pods []Pod
		for i := range count {
			p := Pod{Name: fmt.Sprintf("ns/p%d", i), MilliCPU: 3000}
			for _, c := range change {
				c(&p)
			}
			pods = append(pods, p)
		}
		return pods
	}
	on := func(node string) func(*Pod) { return func(p *Pod) { p.Node = node } }
	tainted := pool("a", 1, 5)
	tainted.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	tests := map[string]struct {
		reason    string
		pools     []autoscaledPool
		pods      []Pod
		threshold int32
		maxNew    int
		want      map[string]int
	}{
		"Idle":              {reason: "no pod needs more than the minimum", pools: []autoscaledPool{pool("a", 2, 5)}, want: map[string]int{"a": 2}},
		"Idle at zero":      {reason: "a pool may be empty", pools: []autoscaledPool{pool("a", 0, 5)}, want: map[string]int{"a": 0}},
		"One each":          {reason: "each pod needs its own node", pools: []autoscaledPool{pool("a", 1, 5)}, pods: pending(3), want: map[string]int{"a": 3}},
		"At the maximum":    {reason: "the maximum limits the nodes", pools: []autoscaledPool{pool("a", 1, 2)}, pods: pending(9), want: map[string]int{"a": 2}},
		"Bound":             {reason: "a node with pods is needed", pools: []autoscaledPool{pool("a", 1, 5, "n1", "n2", "n3")}, pods: append(pending(1, on("n1")), pending(1, on("n3"))...), want: map[string]int{"a": 2}},
		"Bound, and maxNew": {reason: "the pending pod fits next to the running one", pools: []autoscaledPool{pool("a", 1, 5, "n1")}, pods: append(pending(1, on("n1"), func(p *Pod) { p.MilliCPU = 1000 }), pending(1)...), want: map[string]int{"a": 1}},
		"Too large":         {reason: "no node is large enough", pools: []autoscaledPool{pool("a", 1, 5)}, pods: pending(2, func(p *Pod) { p.MilliCPU = 5000 }), want: map[string]int{"a": 1}},
		"Many small":        {reason: "the number of pods per node is limited", pools: []autoscaledPool{pool("a", 1, 5)}, pods: pending(25, func(p *Pod) { p.MilliCPU = 1 }), want: map[string]int{"a": 3}},
		"Daemons":           {reason: "pods of DaemonSets need no additional node", pools: []autoscaledPool{pool("a", 1, 5, "n1", "n2")}, pods: append(pending(3, func(p *Pod) { p.DaemonSet = true }), Pod{Name: "ns/d", Node: "n1", DaemonSet: true}), want: map[string]int{"a": 1}},
		"Not worth it":      {reason: "the priority threshold excludes the pods", pools: []autoscaledPool{pool("a", 1, 5)}, pods: pending(3, func(p *Pod) { p.Priority = -11 }), threshold: -10, want: map[string]int{"a": 1}},
		"No maxNew":         {reason: "the number of the cluster's nodes is limited", pools: []autoscaledPool{pool("a", 1, 5)}, pods: pending(4), maxNew: 2, want: map[string]int{"a": 3}},
		"Selected": {reason: "only one pool has the label", pools: []autoscaledPool{pool("a", 1, 5), pool("b", 1, 5)},
			pods: pending(3, func(p *Pod) { p.Selector = map[string]string{"pool": "b"} }), want: map[string]int{"a": 1, "b": 3}},
		"Two pools":       {reason: "pods that do not fit into the first pool use the second", pools: []autoscaledPool{pool("b", 1, 5), pool("a", 1, 2)}, pods: pending(4), want: map[string]int{"a": 2, "b": 2}},
		"Not tolerated":   {reason: "no pod tolerates the taint", pools: []autoscaledPool{tainted}, pods: pending(3), want: map[string]int{"a": 1}},
		"Tolerated":       {reason: "all pods tolerate the taint", pools: []autoscaledPool{tainted}, pods: pending(3, func(p *Pod) { p.Tolerations = []corev1.Toleration{{Key: "dedicated", Value: "gpu"}} }), want: map[string]int{"a": 3}},
		"Tolerates all":   {reason: "a toleration without a key matches every taint", pools: []autoscaledPool{tainted}, pods: pending(3, func(p *Pod) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), want: map[string]int{"a": 3}},
		"Tolerates other": {reason: "another value is another taint", pools: []autoscaledPool{tainted}, pods: pending(3, func(p *Pod) { p.Tolerations = []corev1.Toleration{{Key: "dedicated", Value: "db"}} }), want: map[string]int{"a": 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			maxNew, threshold := tc.maxNew, tc.threshold
			if maxNew == 0 {
				maxNew = math.MaxInt
			}
			if threshold == 0 {
				threshold = math.MinInt32
			}
			if diff := cmp.Diff(tc.want, nodeCounts(tc.pools, tc.pods, threshold, maxNew)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
