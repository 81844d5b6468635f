// Package breakglass implements the PKI operator of hosted control planes. For each class of break-glass credentials it
// manages a signer and the bundles that the hosted API server trusts. It signs certificate requests for which a
// CertificateSigningRequestApproval exists, and revokes a class by replacing its signer.
//
// A revocation is reported as complete only after the API server itself has accepted the new signer and rejected the
// old one. All state is on the management cluster, so the process may be killed between any two writes. Every write is
// conditional on the version that was read.
package breakglass

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const fieldManager = client.FieldOwner(contract.PKIManager)

// concurrency is the number of control planes, of requests and of revocations that are reconciled at the same time, so
// that a server that does not respond does not block others.
const concurrency = 4

// Operator is the PKI operator of every control plane of a management cluster.
type Operator struct {
	// Management reads from the cache, but nothing older than its own last write, and writes.
	Management *readyourwrites.Client
	Probe      Prober
	NewQueue   readyourwrites.NewQueue
	Log        *slog.Logger
}

// SetupWithManager registers the controllers of signers, of requests and of revocations.
func (o *Operator) SetupWithManager(mgr ctrl.Manager) error {
	managed := builder.WithPredicates(predicate.NewPredicateFuncs(isManagedObject))
	concurrent := controller.Options{MaxConcurrentReconciles: concurrency, NewQueue: o.NewQueue}
	created := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).Named("break-glass-signer").
		For(&hyperv1.HostedControlPlane{}, created).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.controlPlaneOfNamespace), managed).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(o.controlPlaneOfNamespace), managed).
		Watches(&certificatesv1alpha1.CertificateSigningRequestApproval{}, handler.EnqueueRequestsFromMapFunc(o.controlPlaneOfNamespace), created).
		Watches(&certificatesv1alpha1.CertificateRevocationRequest{}, handler.EnqueueRequestsFromMapFunc(o.controlPlaneOfNamespace), created).
		WithOptions(concurrent).Complete(reconciler(o.reconcileSigners))
	if err != nil {
		return fmt.Errorf("setting up the controller of signers: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("break-glass-request").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(hasOurSigner))).
		Watches(&certificatesv1alpha1.CertificateSigningRequestApproval{}, &handler.EnqueueRequestForObject{}, created).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.requestsOfSigner), managed).
		WithOptions(concurrent).Complete(reconciler(o.reconcileRequest))
	if err != nil {
		return fmt.Errorf("setting up the controller of certificate requests: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("break-glass-revocation").
		For(&certificatesv1alpha1.CertificateRevocationRequest{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.revocationsOfNamespace), managed).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(o.revocationsOfNamespace), managed).
		WithOptions(concurrent).Complete(reconciler(o.reconcileRevocation))
	if err != nil {
		return fmt.Errorf("setting up the controller of revocations: %w", err)
	}
	return nil
}

// isManagedObject reports whether a secret or ConfigMap has a name that the operator manages or waits for.
func isManagedObject(object client.Object) bool {
	switch object.GetName() {
	case contract.TotalClientCAConfigMap, contract.ClientCAConfigMap:
		return true
	}
	for _, class := range contract.SignerClasses() {
		switch object.GetName() {
		case class.SignerSecret(), class.TrustConfigMap(), class.ClientSecret():
			return true
		}
	}
	return false
}

func hasOurSigner(object client.Object) bool {
	request, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return false
	}
	_, _, ok = contract.ParseSignerName(request.Spec.SignerName)
	return ok
}

// controlPlane returns the control plane in a namespace; nil if there is none, or it is being deleted.
func (o *Operator) controlPlane(ctx context.Context, namespace string) (*hyperv1.HostedControlPlane, error) {
	var list hyperv1.HostedControlPlaneList
	if err := o.Management.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the control planes of namespace %s: %w", namespace, err)
	}
	if len(list.Items) != 1 || !list.Items[0].DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return &list.Items[0], nil
}

// controlPlaneOfNamespace returns the control plane of an object's namespace.
func (o *Operator) controlPlaneOfNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	hcp, err := o.controlPlane(ctx, object.GetNamespace())
	if err != nil || hcp == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(hcp)}}
}

// requestsOfSigner returns the certificate signing requests that wait for a signer.
func (o *Operator) requestsOfSigner(ctx context.Context, object client.Object) []reconcile.Request {
	var list certificatesv1.CertificateSigningRequestList
	if err := o.Management.List(ctx, &list); err != nil {
		o.Log.Error("listing certificate signing requests failed", logkey.Error, err)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		controlPlane, class, ok := contract.ParseSignerName(list.Items[i].Spec.SignerName)
		if ok && controlPlane == object.GetNamespace() && class.SignerSecret() == object.GetName() && len(list.Items[i].Status.Certificate) == 0 {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// revocationsOfNamespace returns the revocations in an object's namespace.
func (o *Operator) revocationsOfNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	var list certificatesv1alpha1.CertificateRevocationRequestList
	if err := o.Management.List(ctx, &list, client.InNamespace(object.GetNamespace())); err != nil {
		o.Log.Error("listing certificate revocation requests failed", logkey.Namespace, object.GetNamespace(), logkey.Error, err)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// reconciler converts a function to a reconciler. A conflict or a terminating namespace is not an error: the write of
// another client starts the next pass.
func reconciler(pass func(context.Context, client.ObjectKey) (time.Duration, error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		wait, err := pass(ctx, request.NamespacedName)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			return reconcile.Result{RequeueAfter: readyourwrites.RetryDelay}, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return reconcile.Result{}, nil
		case err != nil:
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: wait}, nil
	})
}
