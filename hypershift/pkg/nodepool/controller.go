// Package nodepool implements HyperShift's node pool controller and simulates the layers below it: Cluster API,
// machines and kubelets. It stores the machines of each pool in the control plane's namespace and moves them through
// creation, rolling replacement and draining according to the schedule. It registers their nodes in hosted clusters
// with a real API server, and reports the state with HyperShift's conditions. The record of machines is written before
// its effects, so a pass that was interrupted is completed by the next one.
//
// A pool that autoscales has as many nodes as the pods of its hosted cluster need, as with the cluster autoscaler:
// PodWatcher watches the pods, and nodeCounts simulates their placement. Nothing here schedules a pod, and only the
// fields of a pod that decide on its placement are stored.
package nodepool

import (
	"context"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Nodes manages the nodes of real hosted clusters. NodeManager implements it.
type Nodes interface {
	Sync(ctx context.Context, controlPlane, pool string, desired []Node) (ready map[string]bool, err error)
	Drain(ctx context.Context, controlPlane string, nodes []string) (remaining map[string]int, err error)
}

// Pods returns the pods of real hosted clusters. PodWatcher implements it.
type Pods interface {
	Pods(ctx context.Context, controlPlane string) (pods []Pod, known bool)
	Forget(controlPlane string)
}

// Reconciler reconciles NodePools.
type Reconciler struct {
	// Management reads from the cache, but nothing older than its own last write, and writes. Live reads past the
	// cache.
	Management *readyourwrites.Client
	Live       client.Reader
	Releases   *release.Catalog
	Scale      schedule.Scale
	Nodes      Nodes
	Pods       Pods
	NewQueue   readyourwrites.NewQueue
	Log        *slog.Logger
}

// concurrency is the number of NodePools that are reconciled at the same time, as in the real operator.
const concurrency = 10

// SetupWithManager registers the controller. changes carries a Namespace object named after a control plane when the
// state of its API server changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, changes <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		For(&hyperv1.NodePool{}, builder.WithPredicates(readyourwrites.IgnoreStatusUpdates())).
		Watches(&hyperv1.HostedCluster{}, handler.EnqueueRequestsFromMapFunc(r.hostedClusterToNodePools), builder.WithPredicates(clusterChanged())).
		WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToNodePools))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, NewQueue: r.NewQueue, LogConstructor: func(request *reconcile.Request) logr.Logger {
			if request == nil {
				return mgr.GetLogger()
			}
			return mgr.GetLogger().WithValues("nodePool", request.String())
		}}).
		Complete(r)
}

// clusterChanged selects the changes of a HostedCluster on which node pools depend: its spec, its deletion, whether
// it has a kubeconfig and machines can be provisioned, and the versions of the control plane.
func clusterChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*hyperv1.HostedCluster)
		after, ok2 := e.ObjectNew.(*hyperv1.HostedCluster)
		if !ok || !ok2 {
			return true
		}
		return before.Generation != after.Generation || canProvision(before) != canProvision(after) ||
			(before.Status.KubeConfig == nil) != (after.Status.KubeConfig == nil) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(before.Status.Version, after.Status.Version)
	}}
}

func (r *Reconciler) hostedClusterToNodePools(ctx context.Context, object client.Object) []reconcile.Request {
	return r.nodePools(ctx, object.GetNamespace(), object.GetName())
}

func (r *Reconciler) controlPlaneToNodePools(ctx context.Context, object client.Object) []reconcile.Request {
	var hcps hyperv1.HostedControlPlaneList
	if err := r.Management.List(ctx, &hcps, client.InNamespace(object.GetName())); err != nil {
		r.Log.Error("listing the HostedControlPlanes of a namespace failed", logkey.Namespace, object.GetName(), logkey.Error, err)
		return nil
	}
	var requests []reconcile.Request
	for i := range hcps.Items {
		hcp := &hcps.Items[i]
		namespace, name, ok := strings.Cut(hcp.Annotations[contract.HostedClusterAnnotation], "/")
		if ok {
			requests = append(requests, r.nodePools(ctx, namespace, name)...)
		}
	}
	return requests
}

func (r *Reconciler) nodePools(ctx context.Context, namespace, hostedCluster string) []reconcile.Request {
	var pools hyperv1.NodePoolList
	if err := r.Management.List(ctx, &pools, client.InNamespace(namespace)); err != nil {
		r.Log.Error("listing NodePools failed", logkey.Namespace, namespace, logkey.Error, err)
		return nil
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		if pools.Items[i].Spec.ClusterName == hostedCluster {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
		}
	}
	return requests
}
