// Package hostedcluster implements the HyperShift operator and the control-plane operator for one HostedCluster. It
// creates the control-plane namespace, the HostedControlPlane, the PKI, the secrets and the components, starts an API
// server in process fidelity, and reports the state with HyperShift's conditions, reasons and version histories.
//
// A pass makes all changes that time and facts allow, and then waits for an event or for the next point of the
// schedule. All state is on the management cluster, so the runtime may be killed between any two writes. It must never
// write a field of another field manager.
package hostedcluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
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

// ControlPlanes runs hosted API servers. hostedapi.Supervisor implements it.
type ControlPlanes interface {
	Ensure(spec hostedapi.Spec) (hostedapi.State, error)
	State(name string) (state hostedapi.State, ok bool)
	Encrypted(ctx context.Context, name string) (bool, error)
	Remove(ctx context.Context, name string) error
}

// Reconciler reconciles HostedClusters.
type Reconciler struct {
	// Management reads from the cache, but nothing older than its own last write, and writes. Live reads past the
	// cache.
	Management *readyourwrites.Client
	Live       client.Reader
	Releases   *release.Catalog
	Scale      schedule.Scale
	// Fidelity is the fidelity of clusters without an annotation. Process fidelity needs ControlPlanes.
	Fidelity      contract.Fidelity
	ControlPlanes ControlPlanes
	// EgressProxy states that hosted API servers connect to token issuers through the egress proxy.
	EgressProxy bool
	// KubeletAuthority is the PEM certificate that signs the serving certificate of kubelets; nil if nodes have none.
	KubeletAuthority []byte
	// HostedSecrets reads secrets inside clusters of process fidelity.
	HostedSecrets HostedSecrets
	// OnRemove is called before a control plane's API server or its certificates are removed, so that its clients stop.
	OnRemove func(controlPlaneNamespace string)
	NewQueue readyourwrites.NewQueue
	Log      *slog.Logger

	owners sync.Map // reconcile.Request of the HostedCluster, by control-plane namespace
}

// concurrency is the number of HostedClusters that are reconciled at the same time, as in the real operator.
const concurrency = 10

// SetupWithManager registers the controller. changes carries a Namespace object named after a control plane when the
// state of its API server changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, changes <-chan event.GenericEvent) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hostedcluster").
		For(&hyperv1.HostedCluster{}, builder.WithPredicates(readyourwrites.IgnoreStatusUpdates())).
		Watches(&hyperv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(nodePoolToHostedCluster)).
		Watches(&hyperv1.HostedControlPlane{}, handler.EnqueueRequestsFromMapFunc(annotatedOwner), builder.WithPredicates(readyourwrites.IgnoreStatusUpdates())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(annotatedOwner)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToHostedClusters)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToHostedClusters)).
		WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToHostedCluster))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, NewQueue: r.NewQueue, LogConstructor: logConstructor(mgr)}).
		Complete(r)
}

func nodePoolToHostedCluster(_ context.Context, object client.Object) []reconcile.Request {
	pool, ok := object.(*hyperv1.NodePool)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}}}
}

// annotatedOwner returns the HostedCluster that the annotation of a control-plane namespace or HostedControlPlane
// names.
func annotatedOwner(_ context.Context, object client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(object.GetAnnotations()[contract.HostedClusterAnnotation], "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

func (r *Reconciler) controlPlaneToHostedCluster(_ context.Context, object client.Object) []reconcile.Request {
	owner, ok := r.owners.Load(object.GetName())
	if !ok {
		return nil
	}
	return []reconcile.Request{owner.(reconcile.Request)}
}

// namespaceToHostedClusters returns the clusters in the namespace of a secret or ConfigMap: one of them may wait for
// it.
func (r *Reconciler) namespaceToHostedClusters(ctx context.Context, object client.Object) []reconcile.Request {
	var clusters hyperv1.HostedClusterList
	if err := r.Management.List(ctx, &clusters, client.InNamespace(object.GetNamespace())); err != nil {
		r.Log.Error("listing the HostedClusters of a namespace failed", logkey.Namespace, object.GetNamespace(), logkey.Error, err)
		return nil
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
	}
	return requests
}

// secretToHostedClusters returns the cluster of changed encryption keys. For another Secret it returns the clusters in its namespace, one
// of which may refer to it.
func (r *Reconciler) secretToHostedClusters(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetName() != contract.EncryptionKeySecret {
		return r.namespaceToHostedClusters(ctx, object)
	}
	return r.controlPlaneToHostedCluster(ctx, &corev1.Namespace{ObjectMeta: objectMeta(object.GetNamespace())})
}

// configMapToHostedClusters returns the cluster of a changed trust bundle. For another ConfigMap it returns the
// clusters in its namespace, one of which may refer to it.
func (r *Reconciler) configMapToHostedClusters(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetName() != contract.TotalClientCAConfigMap {
		return r.namespaceToHostedClusters(ctx, object)
	}
	return r.controlPlaneToHostedCluster(ctx, &corev1.Namespace{ObjectMeta: objectMeta(object.GetNamespace())})
}
