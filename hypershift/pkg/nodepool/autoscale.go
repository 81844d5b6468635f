package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// autoscaling is the autoscaler's decision for a pool, which is stored with its machines.
type autoscaling struct {
	// Replicas is the chosen number of nodes; zero if the pool does not autoscale by pods.
	Replicas int `json:"replicas"`
	// FewerSince is the time since which fewer nodes are sufficient; zero if they are not.
	FewerSince time.Time `json:"less,omitzero"`
}

func (a autoscaling) equal(b autoscaling) bool {
	return a.Replicas == b.Replicas && a.FewerSince.Equal(b.FewerSince)
}

const autoscaleKey = "autoscale.json"

func (a autoscaling) encode(data map[string]string) error {
	if a == (autoscaling{}) {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encoding the autoscaler's decision: %w", err)
	}
	data[autoscaleKey] = string(text)
	return nil
}

func decodeAutoscale(data map[string]string) (a autoscaling, err error) {
	if data[autoscaleKey] == "" {
		return a, nil
	}
	if err := json.Unmarshal([]byte(data[autoscaleKey]), &a); err != nil {
		return a, fmt.Errorf("decoding the autoscaler's decision: %w", err)
	}
	return a, nil
}

// update adapts the decision to the number of nodes that are needed now. It increases Replicas immediately and
// decreases it after fewer nodes were sufficient for schedule.ScaleDown.
func (a autoscaling) update(needed int, scale schedule.Scale, now time.Time) (next autoscaling, wait time.Duration) {
	if needed >= a.Replicas {
		return autoscaling{Replicas: needed}, 0
	}
	next = a
	if next.FewerSince.IsZero() {
		next.FewerSince = now
	}
	if left := scale.Of(schedule.ScaleDown) - now.Sub(next.FewerSince); left > 0 {
		return next, left
	}
	return autoscaling{Replicas: needed}, 0
}

// autoscale sets the target's size if it follows from the pods of a real hosted cluster. Otherwise the size follows
// from the NodePool alone.
func (r *Reconciler) autoscale(ctx context.Context, pool *hyperv1.NodePool, o *observation, machines []Machine, before autoscaling) (autoscaling, time.Duration, error) {
	pools, others, err := r.podScaledPools(ctx, pool)
	if err != nil {
		return before, 0, err
	}
	namespace, isReal, err := r.hostedControlPlane(ctx, pool)
	if err != nil {
		return before, 0, err
	}
	if !scalesByPods(pool) || !isReal || r.Pods == nil {
		if isReal && r.Pods != nil && len(pools) == 0 {
			r.Pods.Forget(namespace)
		}
		return autoscaling{}, 0, nil
	}
	pods, known := r.Pods.Pods(ctx, namespace)
	minimum, maximum := autoscalingRange(pool)
	if before.Replicas == 0 {
		before.Replicas = min(max(len(activeNames(machines)), minimum), maximum)
	}
	if !known {
		// The size does not change until the pods have been listed.
		o.target.replicas = min(max(before.Replicas, minimum), maximum)
		return before, 0, nil
	}
	maxNew, threshold := math.MaxInt, int32(math.MinInt32)
	if profile := o.cluster.Spec.Autoscaling; profile.MaxNodesTotal != nil {
		maxNew = max(0, int(*profile.MaxNodesTotal)-others-len(activeNames(machines)))
	}
	if profile := o.cluster.Spec.Autoscaling; profile.PodPriorityThreshold != nil {
		threshold = *profile.PodPriorityThreshold
	}
	counts := nodeCounts(schedulingPools(pools, o, pool, machines, pods), pods, threshold, maxNew)
	next, wait := before.update(counts[pool.Name], r.Scale, o.now)
	next.Replicas = min(max(next.Replicas, minimum), maximum)
	o.target.replicas, o.target.pods = next.Replicas, podsByNode(pods)
	return next, wait, nil
}

// podScaledPools returns the cluster's pools that autoscale by pods, including the given one, and the number of nodes
// in all other pools.
func (r *Reconciler) podScaledPools(ctx context.Context, pool *hyperv1.NodePool) (podScaled []hyperv1.NodePool, others int, err error) {
	var all hyperv1.NodePoolList
	if err := r.Management.List(ctx, &all, client.InNamespace(pool.Namespace)); err != nil {
		return nil, 0, fmt.Errorf("listing node pools: %w", err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.ClusterName != pool.Spec.ClusterName || !p.DeletionTimestamp.IsZero() {
			continue
		}
		if scalesByPods(p) {
			podScaled = append(podScaled, *p)
		}
		if p.Name != pool.Name {
			others += int(p.Status.Replicas)
		}
	}
	return podScaled, others, nil
}

// scalesByPods reports whether a pool autoscales and no annotation states its load.
func scalesByPods(pool *hyperv1.NodePool) bool {
	return pool.Spec.AutoScaling != nil && pool.Annotations[contract.AutoscaleAnnotation] == ""
}

// autoscalingRange returns the range of an autoscaled pool. The operator does not scale to 0 without the capacities of a machine, which
// Cluster API's provider reports only in newer releases of OpenShift.
func autoscalingRange(pool *hyperv1.NodePool) (minimum, maximum int) {
	return max(1, int(ptr.Deref(pool.Spec.AutoScaling.Min, 0))), int(pool.Spec.AutoScaling.Max)
}

// schedulingPools converts pools for the simulation of placement. Of other pools the number of nodes is known, and the
// names of nodes with pods: a node's name begins with its pool's name.
func schedulingPools(pools []hyperv1.NodePool, o *observation, own *hyperv1.NodePool, machines []Machine, pods []Pod) []autoscaledPool {
	var described []autoscaledPool
	for i := range pools {
		p := &pools[i]
		n := nodeTemplate(p, o)
		labels := n.WellKnownLabels(p.Name)
		maps.Copy(labels, p.Spec.NodeLabels)
		d := autoscaledPool{Name: p.Name, Labels: labels, Taints: n.Taints, Allocatable: allocatable()}
		d.Min, d.Max = autoscalingRange(p)
		if p.Name == own.Name {
			d.Nodes = activeNames(machines)
		} else {
			d.Nodes = nodesWithPods(p.Name, pods)
			d.Min = max(d.Min, int(p.Status.Replicas))
		}
		described = append(described, d)
	}
	return described
}

func nodesWithPods(pool string, pods []Pod) []string {
	names := map[string]bool{}
	for i := range pods {
		if j := strings.LastIndexByte(pods[i].Node, '-'); j > 0 && pods[i].Node[:j] == pool {
			names[pods[i].Node] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func activeNames(machines []Machine) []string {
	var names []string
	for i := range machines {
		if machines[i].active() {
			names = append(names, machines[i].Name)
		}
	}
	return names
}

func podsByNode(pods []Pod) map[string]int {
	count := map[string]int{}
	for i := range pods {
		if pods[i].Node != "" && !pods[i].DaemonSet {
			count[pods[i].Node]++
		}
	}
	return count
}
