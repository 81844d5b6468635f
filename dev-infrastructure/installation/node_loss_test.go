package installation_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// The load runs on one node, and the other node is drained and lost.
const loadNode, lostNode = "node-1", "node-2"

// The phases of the load from outside.
const (
	quietPhase     = "before the drain"
	drainPhase     = "during the drain of a node"
	lossPhase      = "after the loss of a node, until its endpoints are removed"
	afterLossPhase = "without the lost node"
	returnPhase    = "after the return of the node"
)

// dnsSpace is the namespace of the cluster's DNS.
const dnsSpace = "kube-system"

// drainAndLoseNode drains a node and kills it later, while all services are called from the other node and from outside. No call may fail because of
// the drain. When the node is lost, calls may fail until the endpoints of its pods are removed and connections to them have ended. No accepted call
// may be lost, and the pods must be back when the node is.
func (r *region) drainAndLoseNode(services []string) {
	r.t.Helper()
	loads := []*load{r.maestroLoad(), r.frontendLoad(), r.adminLoad()}
	bundles := r.countBundles()
	admin := must.Get(r.outside.StartIngress())(r.t)
	for _, l := range loads {
		l.logEndpoints(l.service)
		l.start(loadNode)
	}

	outside := r.startOutsideLoad(admin, "", "")
	outside.enter(quietPhase)
	outside.await(phaseCalls)

	began := time.Now()
	outside.enter(drainPhase)
	r.drain(lostNode, append(slices.Clone(services), dnsSpace))
	r.log("%s was drained after %v", lostNode, time.Since(began).Round(time.Millisecond))
	for _, l := range loads {
		l.continueCalls("after the drain of " + lostNode)
	}
	r.cordon(lostNode, false)
	r.awaitBothNodes(services)
	for _, l := range loads {
		l.continueCalls("after the end of the drain of " + lostNode)
	}

	outside.enter(lossPhase)
	killed := time.Now()
	must.Do(r.t, r.cluster.KillNode(r.ctx, lostNode))
	for _, service := range services {
		r.awaitEndpointsRemoved(service)
	}
	r.log("the endpoints of %s were removed %v after its loss", lostNode, time.Since(killed).Round(time.Millisecond))
	for _, l := range loads {
		l.tolerateFailures(killed)
	}
	outside.enter(afterLossPhase)
	for _, l := range loads {
		l.continueCalls("after the removal of the endpoints")
	}
	r.awaitConsumersServed(killed)

	returned := time.Now()
	outside.enter(returnPhase)
	must.Do(r.t, errors.Join(r.cluster.StartNode(r.ctx, lostNode), r.cluster.AwaitReady(r.ctx, lostNode)))
	r.awaitBothNodes(services)
	r.log("all pods were ready %v after the start of %s", time.Since(returned).Round(time.Millisecond), lostNode)
	for _, l := range loads {
		l.continueCalls("after the return of " + lostNode)
	}
	outside.await(outsideRate)
	outside.end(lossPhase)
	for _, phase := range []string{quietPhase, drainPhase, lossPhase, afterLossPhase, returnPhase} {
		outside.describe(phase, quietPhase)
	}
	created, failed := bundles+loads[0].stop("publish"), 0
	for _, count := range loads[0].tolerated {
		failed += count
	}
	// A call that failed because its response was lost may have created its bundle.
	if exist := r.countBundles(); exist < created || exist > created+failed {
		r.t.Errorf("%d bundles exist, %d were created and %d calls failed", exist, created, failed)
	}
	for _, l := range loads[1:] {
		l.stop("")
	}
}

// cordon sets whether new pods may be assigned to a node.
func (r *region) cordon(node string, unschedulable bool) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable)
	must.Get(r.cluster.Client().CoreV1().Nodes().Patch(r.ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}))(r.t)
}

// podsOn returns the pods of namespaces on a node.
func (r *region) podsOn(node string, spaces []string) []corev1.Pod {
	r.t.Helper()
	list := must.Get(r.cluster.Client().CoreV1().Pods(metav1.NamespaceAll).List(r.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}))(r.t)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return !slices.Contains(spaces, pod.Namespace) || pod.Status.Phase == corev1.PodSucceeded
	})
}

// drain evicts all pods of namespaces from a node, as kubectl drain does, and returns when they have ended.
func (r *region) drain(node string, spaces []string) {
	r.t.Helper()
	r.cordon(node, true)
	evicted := r.podsOn(node, spaces)
	if len(evicted) < len(spaces) {
		r.t.Fatalf("%d pods are on %s, want at least %d", len(evicted), node, len(spaces))
	}
	for _, pod := range evicted {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
		eventually.Before(r.ctx, r.t, "the eviction of "+pod.Name, func() error {
			return r.cluster.Client().PolicyV1().Evictions(pod.Namespace).Evict(r.ctx, eviction)
		})
	}
	eventually.Before(r.ctx, r.t, "the end of all pods on "+node, func() error {
		if left := r.podsOn(node, spaces); len(left) > 0 {
			return fmt.Errorf("%d pods, the first is %s", len(left), left[0].Name)
		}
		return nil
	})
}

// awaitBothNodes waits until each service has two ready pods on two nodes.
func (r *region) awaitBothNodes(services []string) {
	r.t.Helper()
	for _, service := range services {
		eventually.Before(r.ctx, r.t, "two ready pods of "+service, func() error {
			if ready := r.readyPods(service); len(ready) != 2 {
				return fmt.Errorf("ready: %v", ready)
			}
			return nil
		})
		r.onTwoNodes(service)
	}
}

// awaitEndpointsRemoved waits until a service has no ready endpoint on the lost node.
func (r *region) awaitEndpointsRemoved(service string) {
	r.t.Helper()
	eventually.Before(r.ctx, r.t, "the removal of the endpoints of "+service, func() error {
		list, err := r.cluster.Client().DiscoveryV1().EndpointSlices(service).List(r.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.NodeName != nil && *endpoint.NodeName == lostNode && *endpoint.Conditions.Ready {
					return fmt.Errorf("%s is ready", endpoint.TargetRef.Name)
				}
			}
		}
		return nil
	})
}

// awaitConsumersServed waits until the remaining replica of the Maestro server serves all consumers. The sessions of the lost replica hold them until
// PostgreSQL ends these.
func (r *region) awaitConsumersServed(killed time.Time) {
	r.t.Helper()
	remaining := slices.DeleteFunc(r.pods("maestro-server"), func(pod corev1.Pod) bool { return pod.Spec.NodeName == lostNode })
	if len(remaining) != 1 {
		r.t.Fatalf("%d pods of the Maestro server are not on %s", len(remaining), lostNode)
	}
	eventually.Before(r.ctx, r.t, "a replica that serves all consumers", func() error {
		status, text, err := r.send(nil, http.MethodGet, "http://"+remaining[0].Status.PodIP+":9090/metrics", http.Header{}, "")
		if err != nil {
			return err
		}
		// The consumers of the configuration and of registerConsumer.
		if !strings.Contains(text, "\nmaestro_consumers_served 2\n") {
			return fmt.Errorf("%d: the metric maestro_consumers_served is not 2", status)
		}
		return nil
	})
	r.t.Logf("one replica of the Maestro server served all consumers %v after the loss", time.Since(killed).Round(time.Millisecond))
}
