package nodepool

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLabelsAndTaintsReachANodeOnce changes the labels and taints of a pool whose node runs. As with HyperShift, the node keeps those
// of its registration, and what its owner has set on it.
func TestLabelsAndTaintsReachANodeOnce(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	n := Node{Name: "np-1", Ready: true, Kubelet: "v1.34.1", Labels: map[string]string{"tier": "front"},
		Taints: []corev1.Taint{{Key: "dedicated", Value: "front", Effect: corev1.TaintEffectNoSchedule}}}
	var object corev1.Node
	n.apply("np", &object, now)
	keys := func() []string {
		var keys []string
		for _, taint := range object.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		return keys
	}
	if object.Labels["tier"] != "front" || !slices.Equal(keys(), []string{"dedicated"}) {
		t.Fatalf("a new node has labels %v, taints %v", object.Labels, object.Spec.Taints)
	}

	object.Labels["tier"] = "changed"
	object.Spec.Taints = append(object.Spec.Taints, corev1.Taint{Key: "owner", Effect: corev1.TaintEffectNoExecute})
	before := maps.Clone(object.Labels)
	n.Labels, n.Taints = map[string]string{"tier": "back", "zone": "a"}, nil
	if changed, _ := n.apply("np", &object, now); changed || !maps.Equal(object.Labels, before) || !slices.Equal(keys(), []string{"dedicated", "owner"}) {
		t.Errorf("a running node has labels %v, taints %v after a change of its pool", object.Labels, object.Spec.Taints)
	}

	n.Cordoned = true
	n.apply("np", &object, now)
	if !slices.Equal(keys(), []string{"dedicated", "owner", corev1.TaintNodeUnschedulable}) {
		t.Errorf("a cordoned node has taints %v", object.Spec.Taints)
	}
}
