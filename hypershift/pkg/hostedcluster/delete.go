package hostedcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// delete performs the next steps of a deletion, in the operator's order: node pools, control plane, its namespace,
// annotations of referenced secrets, grace period, finalizer. Each step waits until the objects of the previous step
// are gone.
func (r *Reconciler) delete(ctx context.Context, hc *hyperv1.HostedCluster) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(hc, contract.Finalizer) {
		return 0, nil
	}
	period, err := gracePeriod(hc)
	if err != nil {
		return 0, errors.Join(err, r.reportProblem(ctx, hc, err))
	}
	existing, err := r.deleteNodePools(ctx, hc, r.Management)
	if err != nil || existing > 0 {
		return 0, err
	}
	namespace := contract.ControlPlaneNamespace(hc.Namespace, hc.Name)
	gone, wait, err := r.deleteControlPlane(ctx, hc, namespace)
	if err != nil || !gone {
		return wait, err
	}
	if gone, err = r.deleteNamespace(ctx, namespace); err != nil || !gone {
		return 0, err
	}
	// A node pool that was created just before the deletion may have been missing in the cache in the first step. It
	// would never be deleted, so this check reads past the cache.
	if existing, err = r.deleteNodePools(ctx, hc, r.Live); err != nil || existing > 0 {
		return 0, err
	}
	if err := r.releaseSecrets(ctx, hc); err != nil {
		return 0, err
	}
	if wait, err := r.awaitGracePeriod(ctx, hc, period); err != nil || wait > 0 {
		return wait, err
	}
	base := hc.DeepCopy()
	controllerutil.RemoveFinalizer(hc, contract.Finalizer)
	if err := r.Management.Patch(ctx, hc, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return 0, fmt.Errorf("removing the HostedCluster's finalizer: %w", err)
	}
	r.owners.Delete(namespace)
	r.Log.Info("hosted cluster deleted", logkey.HostedCluster, hc.Namespace+"/"+hc.Name, logkey.ResourceID, hc.Annotations[contract.AzureResourceIDAnnotation],
		logkey.Duration, time.Since(hc.DeletionTimestamp.Time).Round(time.Millisecond).String())
	return 0, nil
}

// deleteNodePools deletes the cluster's node pools that reader returns, and returns the number of existing ones.
func (r *Reconciler) deleteNodePools(ctx context.Context, hc *hyperv1.HostedCluster, reader client.Reader) (existing int, err error) {
	var pools hyperv1.NodePoolList
	if err := reader.List(ctx, &pools, client.InNamespace(hc.Namespace)); err != nil {
		return 0, fmt.Errorf("listing node pools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if pool.Spec.ClusterName != hc.Name {
			continue
		}
		existing++
		if !pool.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Management.Delete(ctx, pool); client.IgnoreNotFound(err) != nil {
			return existing, fmt.Errorf("deleting node pool %s: %w", pool.Name, err)
		}
	}
	return existing, nil
}

// deleteControlPlane deletes the HostedControlPlane and, after its cloud resources are destroyed, removes its API
// server and all its data. The finalizer of the HostedControlPlane remains until then.
func (r *Reconciler) deleteControlPlane(ctx context.Context, hc *hyperv1.HostedCluster, namespace string) (gone bool, wait time.Duration, err error) {
	hcp, err := r.controlPlane(ctx, hc, namespace)
	if err != nil {
		return false, 0, err
	}
	if hcp == nil {
		return true, 0, nil
	}
	if hcp.DeletionTimestamp.IsZero() {
		if err := r.Management.Delete(ctx, hcp); client.IgnoreNotFound(err) != nil {
			return false, 0, fmt.Errorf("deleting the HostedControlPlane: %w", err)
		}
		// The object still exists because of its finalizer. The call has set its deletion timestamp.
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(hcp), hcp); err != nil {
			return apierrors.IsNotFound(err), 0, client.IgnoreNotFound(err)
		}
	}
	return r.finishControlPlane(ctx, hc, hcp, true)
}

// finishControlPlane ends the deletion of a HostedControlPlane: it waits for the cloud resources, removes the API server and its
// data, and then the finalizer. With withData false it removes neither the API server nor its data, but the objects that belong
// to the HostedControlPlane.
func (r *Reconciler) finishControlPlane(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, withData bool) (gone bool, wait time.Duration, err error) {
	faults, _ := contract.ParseFaults(hc.Annotations) // pass has already reported unknown faults
	if faults.Has(contract.FaultDeleteStuck) {
		return false, 0, r.reportRemaining(ctx, hc, hcp)
	}
	cleanup := schedule.CloudCleanup
	if faults.Has(contract.FaultCloudGone) {
		cleanup = schedule.CloudTimeout
	}
	if left := r.Scale.Of(cleanup) - time.Since(hcp.DeletionTimestamp.Time); left > 0 {
		return false, left, r.reportRemaining(ctx, hc, hcp)
	}
	if r.OnRemove != nil {
		r.OnRemove(hcp.Namespace)
	}
	if withData {
		err = r.removeData(ctx, hcp)
	} else {
		err = r.deleteOwned(ctx, hcp)
	}
	if err != nil {
		return false, 0, err
	}
	base := hcp.DeepCopy()
	if !controllerutil.RemoveFinalizer(hcp, contract.Finalizer) {
		return false, 0, nil
	}
	if err := r.Management.Patch(ctx, hcp, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
		return false, 0, fmt.Errorf("removing the HostedControlPlane's finalizer: %w", err)
	}
	return true, 0, nil
}

// removeData removes the API server of a control plane, all its data, and the objects in its namespace, which is deleted next. The garbage
// collector would read and delete each object.
func (r *Reconciler) removeData(ctx context.Context, hcp *hyperv1.HostedControlPlane) error {
	fidelity, err := contract.FidelityOf(hcp)
	if err != nil {
		return err
	}
	if fidelity == contract.FidelityProcess {
		if r.ControlPlanes == nil {
			return errNoControlPlanes // without this error its keys would remain in etcd
		}
		if err := r.ControlPlanes.Remove(ctx, hcp.Namespace); err != nil {
			return fmt.Errorf("removing the hosted API server: %w", err)
		}
	}
	var writes []func() error
	for _, kind := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &hyperv1.ControlPlaneComponent{}} {
		writes = append(writes, func() error {
			if err := r.Management.DeleteAllOf(ctx, kind, client.InNamespace(hcp.Namespace)); err != nil {
				return fmt.Errorf("deleting all objects of type %T of the control plane: %w", kind, err)
			}
			return nil
		})
	}
	return runConcurrently(componentWriters, writes)
}

// reportRemaining reports that cloud resources of a control plane remain. The HostedCluster has the condition too. When the resources are gone,
// or given up, the HostedControlPlane is removed at once, so that nobody sees that it reports this.
func (r *Reconciler) reportRemaining(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane) error {
	remaining := metav1.Condition{Type: string(hyperv1.CloudResourcesDestroyed), Status: metav1.ConditionFalse, Reason: "RemainingCloudResources",
		Message: "Remaining resources: persistent-volumes", ObservedGeneration: hcp.Generation}
	base := hcp.DeepCopy()
	meta.SetStatusCondition(&hcp.Status.Conditions, remaining)
	if !equality.Semantic.DeepEqual(base.Status, hcp.Status) {
		if err := r.updateStatus(ctx, hcp, "HostedControlPlane", nil, controlPlaneManager); err != nil {
			return err
		}
	}
	before := hc.DeepCopy()
	remaining.ObservedGeneration = hc.Generation
	meta.SetStatusCondition(&hc.Status.Conditions, remaining)
	return r.patchStatus(ctx, hc, before)
}

func (r *Reconciler) deleteNamespace(ctx context.Context, name string) (gone bool, err error) {
	var namespace corev1.Namespace
	err = r.Management.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		// The cache may not contain it yet if a cluster is deleted right after its creation.
		err = r.Live.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	}
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting namespace %s: %w", name, err)
	}
	if !namespace.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if err := r.Management.Delete(ctx, &namespace); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting namespace %s: %w", name, err)
	}
	return false, nil
}

// releaseSecrets deletes the secrets that were created in the HostedCluster's namespace, and removes the operator's
// annotation from the secrets to which the HostedCluster referred.
func (r *Reconciler) releaseSecrets(ctx context.Context, hc *hyperv1.HostedCluster) error {
	// Read past the cache, which may not contain an annotation from just before the deletion.
	var secrets corev1.SecretList
	if err := r.Live.List(ctx, &secrets, client.InNamespace(hc.Namespace)); err != nil {
		return fmt.Errorf("listing secrets: %w", err)
	}
	mark := contract.ReferencedResourcePrefix + hc.Name
	var writes []func() error
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		_, marked := secret.Annotations[mark]
		switch {
		case isOwned(secret, hc):
			writes = append(writes, func() error {
				if err := r.Management.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("deleting Secret %s: %w", secret.Name, err)
				}
				return nil
			})
		case marked:
			writes = append(writes, func() error {
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, mark))
				if err := r.Management.Patch(ctx, secret, patch, operatorManager); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("removing the annotation of Secret %s: %w", secret.Name, err)
				}
				return nil
			})
		}
	}
	return runConcurrently(componentWriters, writes)
}

// releaseVanished removes the operator's annotations of a HostedCluster that has disappeared before its deletion was finished here: somebody has removed its
// finalizer, or the API server has ignored it. An API server reads an object and deletes it in two steps, and does not look for a finalizer that was added in
// between.
func (r *Reconciler) releaseVanished(ctx context.Context, request reconcile.Request) error {
	namespace := contract.ControlPlaneNamespace(request.Namespace, request.Name)
	if _, seen := r.owners.Load(namespace); !seen {
		return nil
	}
	if err := r.releaseSecrets(ctx, &hyperv1.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}}); err != nil {
		return err
	}
	r.owners.Delete(namespace)
	return nil
}

func isOwned(object, owner client.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// gracePeriod returns how long the object of a destroyed cluster is kept.
func gracePeriod(hc *hyperv1.HostedCluster) (time.Duration, error) {
	asked := hc.Annotations[hyperv1.HCDestroyGracePeriodAnnotation]
	if asked == "" {
		return 0, nil
	}
	period, err := time.ParseDuration(asked)
	if err != nil {
		return 0, fmt.Errorf("failed to parse %s annotation: %w", hyperv1.HCDestroyGracePeriodAnnotation, err)
	}
	return period, nil
}

// reportProblem reports an error that stops a deletion.
func (r *Reconciler) reportProblem(ctx context.Context, hc *hyperv1.HostedCluster, problem error) error {
	base := hc.DeepCopy()
	conditions{list: &hc.Status.Conditions, now: metav1.Now(), generation: hc.Generation}.setFalse(hyperv1.ReconciliationSucceeded, hyperv1.ReconciliationErrorReason, problem.Error())
	return r.patchStatus(ctx, hc, base)
}

// patchStatus writes changed conditions of a HostedCluster.
func (r *Reconciler) patchStatus(ctx context.Context, hc, base *hyperv1.HostedCluster) error {
	if equality.Semantic.DeepEqual(base.Status, hc.Status) {
		return nil
	}
	if err := r.Management.Status().Patch(ctx, hc, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("writing the status of the HostedCluster: %w", err)
	}
	return nil
}

// awaitGracePeriod keeps a destroyed cluster's object for a duration, and reports that.
func (r *Reconciler) awaitGracePeriod(ctx context.Context, hc *hyperv1.HostedCluster, period time.Duration) (time.Duration, error) {
	if period <= 0 {
		return 0, nil
	}
	since := time.Now()
	if c := findCondition(hc.Status.Conditions, hyperv1.HostedClusterDestroyed); c.isTrue() {
		since = c.LastTransitionTime.Time
	}
	status := *hc.Status.DeepCopy()
	conditions{list: &status.Conditions, now: metav1.NewTime(since), generation: hc.Generation}.setTrue(hyperv1.HostedClusterDestroyed,
		hyperv1.WaitingForGracePeriodReason, "HostedCluster is destroyed and awaits its grace period of "+period.String())
	if err := r.writeStatus(ctx, hc, &observation{}, status); err != nil {
		return 0, err
	}
	return max(0, period-time.Since(since)), nil
}
