// Package hostedcluster plays the HyperShift operator and the control-plane operator for one HostedCluster: it makes
// the control-plane namespace, the HostedControlPlane, the PKI, the secrets and the components, has the API server run
// where the fidelity asks for one, and reports all of it with HyperShift's conditions, reasons and version histories.
// A pass does everything that time and facts allow and then waits for an event or for the next point of the schedule;
// what a pass knows is on the management cluster, so the runtime may be killed between any two writes. It must never
// write a field of another manager.
package hostedcluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/release"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Fidelity is how real a hosted control plane is.
type Fidelity string

const (
	// FidelityProcess runs a real API server per control plane.
	FidelityProcess Fidelity = "process"
	// FidelityStatus only reports.
	FidelityStatus Fidelity = "status"
)

// ParseFidelity reads a fidelity.
func ParseFidelity(text string) (Fidelity, error) {
	switch f := Fidelity(text); f {
	case FidelityProcess, FidelityStatus:
		return f, nil
	}
	return "", fmt.Errorf("fidelity %q is neither %q nor %q", text, FidelityProcess, FidelityStatus)
}

// ControlPlanes runs hosted API servers. hostedapi.Supervisor is one.
type ControlPlanes interface {
	Ensure(spec hostedapi.Spec) (hostedapi.State, error)
	Remove(ctx context.Context, name string) error
}

// Reconciler reconciles HostedClusters.
type Reconciler struct {
	// Management reads from the cache, but nothing older than what was written through it, and writes; Live reads past the cache.
	Management *ownwrites.Client
	Live       client.Reader
	Releases   *release.Catalog
	Scale      schedule.Scale
	// Fidelity is that of clusters that do not say theirs. Process fidelity needs ControlPlanes.
	Fidelity      Fidelity
	ControlPlanes ControlPlanes
	// Guests tells of secrets inside clusters of process fidelity.
	Guests Guests
	// Removed is called before a control plane's API server goes away, so that nobody keeps talking to it.
	Removed func(controlPlaneNamespace string)
	Log     *slog.Logger

	owners sync.Map // control-plane namespace to the reconcile.Request of its HostedCluster
}

// concurrency is how many HostedClusters are reconciled at once; it matches the real operator's.
const concurrency = 10

// SetupWithManager registers the controller. changes carries a Namespace named after each control plane whose API
// server changed its state.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, changes <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hostedcluster").
		For(&hyperv1.HostedCluster{}, builder.WithPredicates(ownwrites.NotStatusAlone())).
		Watches(&hyperv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(nodePoolToHostedCluster)).
		Watches(&hyperv1.HostedControlPlane{}, handler.EnqueueRequestsFromMapFunc(annotatedOwner), builder.WithPredicates(ownwrites.NotStatusAlone())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(annotatedOwner)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.besideToHostedClusters)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToHostedClusters)).
		WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.namespaceToHostedCluster))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, LogConstructor: quietLog(mgr)}).
		Complete(r)
}

func nodePoolToHostedCluster(_ context.Context, object client.Object) []reconcile.Request {
	pool, ok := object.(*hyperv1.NodePool)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}}}
}

// annotatedOwner finds the HostedCluster of a control-plane namespace or HostedControlPlane, which carry its name.
func annotatedOwner(_ context.Context, object client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(object.GetAnnotations()[contract.HostedClusterAnnotation], "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

func (r *Reconciler) namespaceToHostedCluster(_ context.Context, object client.Object) []reconcile.Request {
	owner, ok := r.owners.Load(object.GetName())
	if !ok {
		return nil
	}
	return []reconcile.Request{owner.(reconcile.Request)}
}

// besideToHostedClusters wakes the clusters beside a secret or configmap: one of them may wait for it.
func (r *Reconciler) besideToHostedClusters(ctx context.Context, object client.Object) []reconcile.Request {
	var clusters hyperv1.HostedClusterList
	if err := r.Management.List(ctx, &clusters, client.InNamespace(object.GetNamespace())); err != nil {
		r.Log.Error("listing the HostedClusters of a namespace", "namespace", object.GetNamespace(), "error", err)
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
	}
	return requests
}

// configMapToHostedClusters wakes the cluster whose trust bundle changed, and those beside a configmap, one of which may
// refer to it.
func (r *Reconciler) configMapToHostedClusters(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetName() != contract.TotalClientCAConfigMap {
		return r.besideToHostedClusters(ctx, object)
	}
	return r.namespaceToHostedCluster(ctx, &corev1.Namespace{ObjectMeta: metaNamed(object.GetNamespace())})
}
