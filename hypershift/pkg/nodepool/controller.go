// Package nodepool plays HyperShift's node pool controller and what stands behind it (Cluster API, machines,
// kubelets): it keeps a record of each pool's machines in the control plane's namespace, moves them through creation,
// rolling replacement and draining on the schedule, has their nodes registered in the hosted cluster where there is a
// real one, and reports all of it with HyperShift's conditions. The record is written before anything is done about it,
// so a pass that was cut short is finished by the next.
package nodepool

import (
	"context"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/demand"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/node"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
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

// Nodes keeps the nodes of hosted clusters that are real. node.Keeper does.
type Nodes interface {
	Sync(ctx context.Context, controlPlane, pool string, wanted []node.Node) (ready map[string]bool, err error)
	Drain(ctx context.Context, controlPlane string, nodes []string) (left map[string]int, err error)
}

// Pods tells which pods there are in hosted clusters that are real. demand.Follower does.
type Pods interface {
	Pods(ctx context.Context, controlPlane string) (pods []demand.Pod, known bool)
	Forget(controlPlane string)
}

// Reconciler reconciles NodePools.
type Reconciler struct {
	// Management reads from the cache, but nothing older than what was written through it, and writes; Live reads past the cache.
	Management *ownwrites.Client
	Live       client.Reader
	Releases   *release.Catalog
	Scale      schedule.Scale
	Nodes      Nodes
	Pods       Pods
	Log        *slog.Logger
}

// concurrency is how many NodePools are reconciled at once; it matches the real operator's.
const concurrency = 10

// SetupWithManager registers the controller. changes carries a Namespace named after each control plane whose API
// server changed its state.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, changes <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		For(&hyperv1.NodePool{}, builder.WithPredicates(ownwrites.NotStatusAlone())).
		Watches(&hyperv1.HostedCluster{}, handler.EnqueueRequestsFromMapFunc(r.hostedClusterToNodePools), builder.WithPredicates(clusterChanged())).
		WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToNodePools))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, LogConstructor: func(request *reconcile.Request) logr.Logger {
			if request == nil {
				return mgr.GetLogger()
			}
			return mgr.GetLogger().WithValues("nodePool", request.String())
		}}).
		Complete(r)
}

// clusterChanged passes what a node pool depends on: the spec, the deletion, whether machines can be made and which
// version the control plane has.
func clusterChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*hyperv1.HostedCluster)
		after, ok2 := e.ObjectNew.(*hyperv1.HostedCluster)
		if !ok || !ok2 {
			return true
		}
		return before.Generation != after.Generation || canProvision(before) != canProvision(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(installed(before), installed(after))
	}}
}

func (r *Reconciler) hostedClusterToNodePools(ctx context.Context, object client.Object) []reconcile.Request {
	return r.nodePools(ctx, object.GetNamespace(), object.GetName())
}

func (r *Reconciler) controlPlaneToNodePools(ctx context.Context, object client.Object) []reconcile.Request {
	var hcps hyperv1.HostedControlPlaneList
	if err := r.Management.List(ctx, &hcps, client.InNamespace(object.GetName())); err != nil {
		r.Log.Error("listing the HostedControlPlanes of a namespace", "namespace", object.GetName(), "error", err)
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
		r.Log.Error("listing node pools", "namespace", namespace, "error", err)
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
