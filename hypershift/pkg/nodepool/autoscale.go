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
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/demand"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/node"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// autoscale is what the autoscaler decided for a pool, recorded with its machines.
type autoscale struct {
	// Replicas is the size it chose; meaningless while there is no autoscaling.
	Replicas int `json:"replicas"`
	// Less is since when fewer would do; zero while they would not.
	Less time.Time `json:"less,omitzero"`
}

func (a autoscale) equal(b autoscale) bool { return a.Replicas == b.Replicas && a.Less.Equal(b.Less) }

const autoscaleKey = "autoscale.json"

func (a autoscale) encode(data map[string]string) error {
	if a == (autoscale{}) {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encoding the autoscaler's decision: %w", err)
	}
	data[autoscaleKey] = string(text)
	return nil
}

func decodeAutoscale(data map[string]string) (a autoscale, err error) {
	if data[autoscaleKey] == "" {
		return a, nil
	}
	if err := json.Unmarshal([]byte(data[autoscaleKey]), &a); err != nil {
		return a, fmt.Errorf("decoding the autoscaler's decision: %w", err)
	}
	return a, nil
}

// follow moves the decision to what is needed now: up at once, down when fewer would have done for long enough.
func (a autoscale) follow(needed int, scale schedule.Scale, now time.Time) (next autoscale, wait time.Duration) {
	if needed >= a.Replicas {
		return autoscale{Replicas: needed}, 0
	}
	next = a
	if next.Less.IsZero() {
		next.Less = now
	}
	if left := scale.Of(schedule.ScaleDown) - now.Sub(next.Less); left > 0 {
		return next, left
	}
	return autoscale{Replicas: needed}, 0
}

// autoscale sets the target's size where the pods of a real hosted cluster decide on it. Everywhere else it follows from the
// NodePool alone.
func (r *Reconciler) autoscale(ctx context.Context, pool *hyperv1.NodePool, o *observed, machines []Machine, before autoscale) (autoscale, time.Duration, error) {
	pools, others, err := r.siblings(ctx, pool)
	if err != nil {
		return before, 0, err
	}
	namespace, real, err := r.hosted(ctx, pool)
	if err != nil {
		return before, 0, err
	}
	if !followsPods(pool) || !real || r.Pods == nil {
		if real && r.Pods != nil && len(pools) == 0 {
			r.Pods.Forget(namespace)
		}
		return autoscale{}, 0, nil
	}
	pods, known := r.Pods.Pods(ctx, namespace)
	lowest, highest := autoscalingRange(pool)
	if before.Replicas == 0 {
		before.Replicas = min(max(len(alive(machines)), lowest), highest)
	}
	if !known {
		// Its pods are being listed; until then nothing is decided.
		o.target.replicas = min(max(before.Replicas, lowest), highest)
		return before, 0, nil
	}
	room, threshold := math.MaxInt, int32(math.MinInt32)
	if profile := o.cluster.Spec.Autoscaling; profile.MaxNodesTotal != nil {
		room = max(0, int(*profile.MaxNodesTotal)-others-len(alive(machines)))
	}
	if profile := o.cluster.Spec.Autoscaling; profile.PodPriorityThreshold != nil {
		threshold = *profile.PodPriorityThreshold
	}
	wanted := demand.Place(describePools(pools, o, pool, machines, pods), pods, threshold, room)
	next, wait := before.follow(wanted[pool.Name], r.Scale, o.now)
	next.Replicas = min(max(next.Replicas, lowest), highest)
	o.target.replicas, o.target.pods = next.Replicas, podsByNode(pods)
	return next, wait, nil
}

// siblings are the cluster's pools whose size follows from pods, the given one included, and how many nodes there are in all
// others than the given one.
func (r *Reconciler) siblings(ctx context.Context, pool *hyperv1.NodePool) (following []hyperv1.NodePool, others int, err error) {
	var all hyperv1.NodePoolList
	if err := r.Management.List(ctx, &all, client.InNamespace(pool.Namespace)); err != nil {
		return nil, 0, fmt.Errorf("listing node pools: %w", err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.ClusterName != pool.Spec.ClusterName || !p.DeletionTimestamp.IsZero() {
			continue
		}
		if followsPods(p) {
			following = append(following, *p)
		}
		if p.Name != pool.Name {
			others += int(p.Status.Replicas)
		}
	}
	return following, others, nil
}

// followsPods says whether a pool autoscales and no annotation states its load.
func followsPods(pool *hyperv1.NodePool) bool {
	return pool.Spec.AutoScaling != nil && pool.Annotations[contract.AutoscaleAnnotation] == ""
}

func autoscalingRange(pool *hyperv1.NodePool) (lowest, highest int) {
	lowest = 1
	if pool.Spec.AutoScaling.Min != nil {
		lowest = int(*pool.Spec.AutoScaling.Min)
	}
	return lowest, int(pool.Spec.AutoScaling.Max)
}

// describePools are the pools as pods see them. Of the other pools it is known how many nodes they have, and which of these
// have pods: a node's name begins with its pool's.
func describePools(pools []hyperv1.NodePool, o *observed, own *hyperv1.NodePool, machines []Machine, pods []demand.Pod) []demand.Pool {
	var described []demand.Pool
	for i := range pools {
		p := &pools[i]
		n := template(p, o)
		labels := n.WellKnownLabels(p.Name)
		maps.Copy(labels, p.Spec.NodeLabels)
		d := demand.Pool{Name: p.Name, Labels: labels, Taints: n.Taints, Allocatable: node.Allocatable()}
		d.Min, d.Max = autoscalingRange(p)
		if p.Name == own.Name {
			d.Nodes = alive(machines)
		} else {
			d.Nodes = nodesWithPods(p.Name, pods)
			d.Min = max(d.Min, int(p.Status.Replicas))
		}
		described = append(described, d)
	}
	return described
}

func nodesWithPods(pool string, pods []demand.Pod) []string {
	names := map[string]bool{}
	for i := range pods {
		if j := strings.LastIndexByte(pods[i].Node, '-'); j > 0 && pods[i].Node[:j] == pool {
			names[pods[i].Node] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func alive(machines []Machine) []string {
	var names []string
	for i := range machines {
		if machines[i].alive() {
			names = append(names, machines[i].Name)
		}
	}
	return names
}

func podsByNode(pods []demand.Pod) map[string]int {
	count := map[string]int{}
	for i := range pods {
		if pods[i].Node != "" && !pods[i].Daemon {
			count[pods[i].Node]++
		}
	}
	return count
}
