// Package breakglass plays the PKI operator of hosted control planes: for each class of break-glass credentials it keeps a
// signer and the bundles that the hosted API server trusts, signs the requests that were approved by the existence of a
// CertificateSigningRequestApproval, and revokes a class by replacing its signer. A revocation says that it is done only
// after the API server itself was seen to take the new signer and to refuse the old one. What it knows is on the
// management cluster, so it may be killed between any two writes; every write is conditional on the version that was read.
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
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
)

const manager = client.FieldOwner(contract.PKIManager)

// concurrency is how many control planes, requests and revocations are looked at, each: a server that does not answer shall
// hold up no other.
const concurrency = 4

// Operator is the PKI operator of every control plane of a management cluster.
type Operator struct {
	// Management reads from the cache, but nothing older than what was written through it, and writes.
	Management *ownwrites.Client
	Probe      Prober
	Log        *slog.Logger
}

// SetupWithManager registers the controllers: signers by control plane, requests and revocations.
func (o *Operator) SetupWithManager(mgr ctrl.Manager) error {
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(isOurs))
	concurrent := controller.Options{MaxConcurrentReconciles: concurrency}
	created := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).Named("break-glass-signer").
		For(&hyperv1.HostedControlPlane{}, created).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.controlPlanesBeside), ours).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(o.controlPlanesBeside), ours).
		Watches(&certificatesv1alpha1.CertificateSigningRequestApproval{}, handler.EnqueueRequestsFromMapFunc(o.controlPlanesBeside), created).
		Watches(&certificatesv1alpha1.CertificateRevocationRequest{}, handler.EnqueueRequestsFromMapFunc(o.controlPlanesBeside), created).
		WithOptions(concurrent).Complete(quiet(o.reconcileSigners))
	if err != nil {
		return fmt.Errorf("setting up the controller of signers: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("break-glass-request").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(isForUs))).
		Watches(&certificatesv1alpha1.CertificateSigningRequestApproval{}, &handler.EnqueueRequestForObject{}, created).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.requestsOfSigner), ours).
		WithOptions(concurrent).Complete(quiet(o.reconcileRequest))
	if err != nil {
		return fmt.Errorf("setting up the controller of certificate requests: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("break-glass-revocation").
		For(&certificatesv1alpha1.CertificateRevocationRequest{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(o.revocationsBeside), ours).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(o.revocationsBeside), ours).
		WithOptions(concurrent).Complete(quiet(o.reconcileRevocation))
	if err != nil {
		return fmt.Errorf("setting up the controller of revocations: %w", err)
	}
	return nil
}

// isOurs says whether a secret or configmap can be one of the operator's, or of those that it waits for.
func isOurs(object client.Object) bool {
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

func isForUs(object client.Object) bool {
	request, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return false
	}
	_, _, ok = contract.ParseSignerName(request.Spec.SignerName)
	return ok
}

// controlPlane finds the control plane in a namespace; nil if there is none, or it is being deleted.
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

// controlPlanesBeside wakes the control plane of an object's namespace.
func (o *Operator) controlPlanesBeside(ctx context.Context, object client.Object) []reconcile.Request {
	hcp, err := o.controlPlane(ctx, object.GetNamespace())
	if err != nil || hcp == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(hcp)}}
}

// requestsOfSigner wakes the requests that wait for a signer.
func (o *Operator) requestsOfSigner(ctx context.Context, object client.Object) []reconcile.Request {
	var list certificatesv1.CertificateSigningRequestList
	if err := o.Management.List(ctx, &list); err != nil {
		o.Log.Error("listing certificate signing requests", "error", err)
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

// revocationsBeside wakes the revocations in a namespace.
func (o *Operator) revocationsBeside(ctx context.Context, object client.Object) []reconcile.Request {
	var list certificatesv1alpha1.CertificateRevocationRequestList
	if err := o.Management.List(ctx, &list, client.InNamespace(object.GetNamespace())); err != nil {
		o.Log.Error("listing certificate revocation requests", "namespace", object.GetNamespace(), "error", err)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// quiet makes a reconciler of a function. A conflict, or a namespace that goes away, is no error: what was written by
// somebody else brings the next pass.
func quiet(pass func(context.Context, client.ObjectKey) (time.Duration, error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		wait, err := pass(ctx, request.NamespacedName)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			return reconcile.Result{RequeueAfter: ownwrites.CatchUp}, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return reconcile.Result{}, nil
		case err != nil:
			return reconcile.Result{}, err
		}
		return reconcile.Result{RequeueAfter: wait}, nil
	})
}
