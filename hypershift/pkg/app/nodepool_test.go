package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// nodeWatch records the nodes of a hosted API server as a client sees them.
type nodeWatch struct {
	mu sync.Mutex
	// events are `<node> joined|ready|lost|cordoned|left`, in the order of their first occurrence.
	events       []string
	nodes        map[string]*corev1.Node
	fewestUsable int
}

func watchNodes(t *testing.T, hosted kubernetes.Interface) *nodeWatch {
	t.Helper()
	w := &nodeWatch{nodes: map[string]*corev1.Node{}}
	ctx, cancel := context.WithCancel(t.Context())
	watcher := must.Get(hosted.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{}))(t)
	var group sync.WaitGroup
	group.Go(func() {
		for event := range watcher.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok {
				w.record(event.Type, node)
			}
		}
	})
	t.Cleanup(func() { cancel(); watcher.Stop(); group.Wait() })
	return w
}

func (w *nodeWatch) record(kind watch.EventType, node *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note := func(what string) {
		if event := node.Name + " " + what; !slices.Contains(w.events, event) {
			w.events = append(w.events, event)
		}
	}
	if kind == watch.Deleted {
		note("left")
		delete(w.nodes, node.Name)
	} else {
		note("joined")
		w.nodes[node.Name] = node
		switch readiness(node) {
		case corev1.ConditionTrue:
			note("ready")
		case corev1.ConditionUnknown:
			note("lost")
		}
		if node.Spec.Unschedulable && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }) {
			note("cordoned")
		}
	}
	usable := 0
	for _, n := range w.nodes {
		if readiness(n) == corev1.ConditionTrue && !n.Spec.Unschedulable {
			usable++
		}
	}
	w.fewestUsable = min(w.fewestUsable, usable)
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// happened returns nil if the node went through all states in this order.
func (w *nodeWatch) happened(node string, what ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := -1
	for _, each := range what {
		i := slices.Index(w.events, node+" "+each)
		if i <= at {
			return fmt.Errorf("%s was not %v in this order: %v", node, what, w.events)
		}
		at = i
	}
	return nil
}

// countFrom resets the smallest number of usable nodes.
func (w *nodeWatch) countFrom(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fewestUsable = n
}

// usable returns the nodes that pods can use. It returns an error unless exactly want nodes exist and are usable.
func (w *nodeWatch) usable(want int) ([]*corev1.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var nodes []*corev1.Node
	for _, n := range w.nodes {
		if readiness(n) == corev1.ConditionTrue && !n.Spec.Unschedulable {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) != want || len(w.nodes) != want {
		return nil, fmt.Errorf("%d of %d nodes are usable, want %d", len(nodes), len(w.nodes), want)
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return nodes, nil
}

func (w *nodeWatch) await(t *testing.T, want int) (nodes []*corev1.Node) {
	t.Helper()
	eventually.Soon(t, fmt.Sprintf("%d nodes are usable", want), func() (err error) { nodes, err = w.usable(want); return err })
	return nodes
}

func hostedPod(name, node, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{
			Name: "web", Image: "example.test/web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
	}
}

// testNodePoolLifecycle watches the nodes of a pool with a client of the hosted API server while the pool is scaled
// down with a drain that a disruption budget delays, relabelled, replaced with another machine size, repaired, and autoscaled by
// pods.
func (s *sample) testNodePoolLifecycle(t *testing.T) {
	s.setPool(t, int64(2), "spec", "replicas")
	s.setPool(t, "0s", "spec", "nodeDrainTimeout")
	s.apply(t, s.pool)
	s.waitPool(t, poolReady(2))
	hosted := s.hosted(t)
	watched := watchNodes(t, hosted)
	nodes := watched.await(t, 2)

	// A drain waits for a disruption budget with the node cordoned; then the pod is evicted and the node is removed.
	for i, node := range nodes {
		must.Get(hosted.CoreV1().Pods("default").Create(t.Context(), hostedPod(fmt.Sprintf("web-%d", i), node.Name, "1"), metav1.CreateOptions{}))(t)
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &intstr.IntOrString{}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	must.Get(hosted.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{}))(t)
	s.setPool(t, int64(1), "spec", "replicas")
	s.apply(t, s.pool)
	var removed string
	eventually.Soon(t, "a node is cordoned", func() error {
		for _, node := range nodes {
			if watched.happened(node.Name, "ready", "cordoned") == nil {
				removed = node.Name
				return nil
			}
		}
		return fmt.Errorf("no node is cordoned")
	})

	s.waitPool(t, poolReady(1))
	if err := watched.happened(removed, "left"); err == nil {
		t.Error("the node was removed although a disruption budget protects its pod")
	}
	must.Do(t, hosted.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	kept := watched.await(t, 1)[0]
	if err := watched.happened(removed, "ready", "cordoned", "left"); err != nil {
		t.Error(err)
	}
	pods, err := hosted.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != kept.Name {
		t.Errorf("pods: %v, %v", pods.Items, err)
	}

	// Changed labels and taints reach new nodes only.
	s.setPool(t, map[string]any{"team": "b"}, "spec", "nodeLabels")
	unstructured.RemoveNestedField(s.pool.Object, "spec", "taints")
	s.apply(t, s.pool)
	s.waitPool(t, func(pool *hyperv1.NodePool) error {
		for _, c := range pool.Status.Conditions {
			if c.Type == hyperv1.NodePoolUpdatingVersionConditionType && c.ObservedGeneration == pool.Generation && pool.Spec.NodeLabels["team"] == "b" {
				return nil
			}
		}
		return fmt.Errorf("the runtime has not acted on generation %d: %v", pool.Generation, pool.Status.Conditions)
	})
	if n, err := hosted.CoreV1().Nodes().Get(t.Context(), kept.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	} else if n.Labels["team"] != "a" || len(n.Spec.Taints) != 1 {
		t.Errorf("node %s has labels %v, taints %v; a running node keeps them", n.Name, n.Labels, n.Spec.Taints)
	}

	// Another machine size replaces the node, with one more node during the rollout.
	must.Do(t, hosted.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}))
	watched.countFrom(1)
	s.setPool(t, "Standard_D16s_v3", "spec", "platform", "azure", "vmSize")
	s.apply(t, s.pool)
	eventually.Soon(t, "the replaced node is removed", func() error { return watched.happened(kept.Name, "ready", "cordoned", "left") })
	larger := watched.await(t, 1)[0]
	if size := larger.Labels["node.kubernetes.io/instance-type"]; size != "Standard_D16s_v3" || watched.fewestUsable < 1 {
		t.Errorf("the new node has size %s; the smallest number of usable nodes was %d", size, watched.fewestUsable)
	}
	if larger.Labels["team"] != "b" || len(larger.Spec.Taints) != 0 {
		t.Errorf("the new node has labels %v, taints %v", larger.Labels, larger.Spec.Taints)
	}

	// A node whose kubelet stops reporting is replaced.
	s.annotatePool(t, contract.UnhealthyAnnotation, larger.Name)
	eventually.Soon(t, "the unreachable node is removed", func() error { return watched.happened(larger.Name, "ready", "lost", "left") })
	repaired := watched.await(t, 1)[0]
	if repaired.Name == larger.Name {
		t.Error("the replacement has the same name")
	}

	// Pending pods make the pool grow within its range, and it shrinks after their deletion.
	unstructured.RemoveNestedField(s.pool.Object, "spec", "replicas")
	s.setPool(t, map[string]any{"min": int64(1), "max": int64(3)}, "spec", "autoScaling")
	s.apply(t, s.pool)
	for i := range 5 {
		must.Get(hosted.CoreV1().Pods("default").Create(t.Context(), hostedPod(fmt.Sprintf("batch-%d", i), "", "5"), metav1.CreateOptions{}))(t)
	}
	watched.await(t, 3)
	s.waitPool(t, func(pool *hyperv1.NodePool) error {
		for _, c := range pool.Status.Conditions {
			if c.Type == hyperv1.NodePoolAutoscalingEnabledConditionType && c.Status == corev1.ConditionTrue && pool.Status.Replicas == 3 {
				return nil
			}
		}
		return fmt.Errorf("%d replicas, %v", pool.Status.Replicas, pool.Status.Conditions)
	})
	must.Do(t, hosted.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}))
	watched.await(t, 1)
}

// annotatePool sets an annotation on the NodePool.
func (s *sample) annotatePool(t *testing.T, key, value string) {
	t.Helper()
	annotations := s.pool.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	s.pool.SetAnnotations(annotations)
	s.apply(t, s.pool)
}
