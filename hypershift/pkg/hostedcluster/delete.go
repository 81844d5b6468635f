package hostedcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// delete takes the next steps of a deletion, in the operator's order: node pools, control plane, its namespace, marks
// on what was referenced, grace period, finalizer. Every step waits for the one before to be gone.
func (r *Reconciler) delete(ctx context.Context, hc *hyperv1.HostedCluster) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(hc, contract.Finalizer) {
		return 0, nil
	}
	left, err := r.deleteNodePools(ctx, hc, r.Management)
	if err != nil || left > 0 {
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
	// A node pool that was created just before the deletion may not have reached the cache when the first step looked. It
	// would be left for ever, so the last look goes past the cache.
	if left, err = r.deleteNodePools(ctx, hc, r.Live); err != nil || left > 0 {
		return 0, err
	}
	if err := r.releaseSecrets(ctx, hc); err != nil {
		return 0, err
	}
	if wait, err := r.gracePeriod(ctx, hc); err != nil || wait > 0 {
		return wait, err
	}
	base := hc.DeepCopy()
	controllerutil.RemoveFinalizer(hc, contract.Finalizer)
	if err := r.Management.Patch(ctx, hc, ownwrites.Locked(base), operatorManager); err != nil {
		return 0, fmt.Errorf("removing the HostedCluster's finalizer: %w", err)
	}
	r.owners.Delete(namespace)
	r.Log.Info("hosted cluster is deleted", "hostedCluster", hc.Namespace+"/"+hc.Name, "resourceId", hc.Annotations[contract.AzureResourceIDAnnotation],
		"after", time.Since(hc.DeletionTimestamp.Time).Round(time.Millisecond).String())
	return 0, nil
}

// deleteNodePools deletes the cluster's node pools as reader sees them, and counts those that are left.
func (r *Reconciler) deleteNodePools(ctx context.Context, hc *hyperv1.HostedCluster, reader client.Reader) (left int, err error) {
	var pools hyperv1.NodePoolList
	if err := reader.List(ctx, &pools, client.InNamespace(hc.Namespace)); err != nil {
		return 0, fmt.Errorf("listing node pools: %w", err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if pool.Spec.ClusterName != hc.Name {
			continue
		}
		left++
		if !pool.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Management.Delete(ctx, pool); client.IgnoreNotFound(err) != nil {
			return left, fmt.Errorf("deleting node pool %s: %w", pool.Name, err)
		}
	}
	return left, nil
}

// deleteControlPlane deletes the HostedControlPlane and, once its cloud resources are destroyed, ends its API server
// and removes all that it stored. The finalizer of the HostedControlPlane is what remembers that this is still to do.
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
		// The object has a finalizer, so it is still there; its deletion time was set by this very call.
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(hcp), hcp); err != nil {
			return apierrors.IsNotFound(err), 0, client.IgnoreNotFound(err)
		}
	}
	faults, _ := contract.ParseFaults(hc.Annotations) // what it does not know was reported before
	if faults.Has(contract.FaultDeleteStuck) {
		return false, 0, r.reportDestroyed(ctx, hcp, metav1.ConditionFalse, "Waiting for cloud resources to be destroyed")
	}
	cleanup := schedule.CloudCleanup
	if faults.Has(contract.FaultCloudGone) {
		cleanup = schedule.CloudTimeout
	}
	if left := r.Scale.Of(cleanup) - time.Since(hcp.DeletionTimestamp.Time); left > 0 {
		return false, left, r.reportDestroyed(ctx, hcp, metav1.ConditionFalse, "Waiting for cloud resources to be destroyed")
	}
	if r.Removed != nil {
		r.Removed(namespace)
	}
	if Fidelity(hcp.Annotations[contract.FidelityAnnotation]) == FidelityProcess {
		if r.ControlPlanes == nil {
			return false, 0, errNoProcesses // going on would leave its keys in etcd for ever
		}
		if err := r.ControlPlanes.Remove(ctx, namespace); err != nil {
			return false, 0, fmt.Errorf("removing the hosted API server: %w", err)
		}
	}
	base := hcp.DeepCopy()
	if !controllerutil.RemoveFinalizer(hcp, contract.Finalizer) {
		return false, 0, nil
	}
	if err := r.Management.Patch(ctx, hcp, ownwrites.Locked(base), controlPlaneManager); err != nil {
		return false, 0, fmt.Errorf("removing the HostedControlPlane's finalizer: %w", err)
	}
	return true, 0, nil
}

func (r *Reconciler) reportDestroyed(ctx context.Context, hcp *hyperv1.HostedControlPlane, status metav1.ConditionStatus, message string) error {
	base := hcp.DeepCopy()
	meta.SetStatusCondition(&hcp.Status.Conditions, metav1.Condition{
		Type: string(hyperv1.CloudResourcesDestroyed), Status: status, Reason: "WaitingForCloudResources", Message: message, ObservedGeneration: hcp.Generation,
	})
	if equality.Semantic.DeepEqual(base.Status, hcp.Status) {
		return nil
	}
	return r.updateStatus(ctx, hcp, "HostedControlPlane", nil, controlPlaneManager)
}

func (r *Reconciler) deleteNamespace(ctx context.Context, name string) (gone bool, err error) {
	var namespace corev1.Namespace
	err = r.Management.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		// The cache may simply not have seen it: a cluster that is deleted right after it was created.
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

// releaseSecrets deletes the secrets that were made beside the HostedCluster and takes the operator's mark off those
// that it referred to.
func (r *Reconciler) releaseSecrets(ctx context.Context, hc *hyperv1.HostedCluster) error {
	// Past the cache, which may not have seen a mark that was made just before the deletion.
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
					return fmt.Errorf("unmarking Secret %s: %w", secret.Name, err)
				}
				return nil
			})
		}
	}
	return atOnce(componentWriters, writes)
}

func isOwned(object, owner client.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// gracePeriod keeps a destroyed cluster's object for as long as it asks, and says so.
func (r *Reconciler) gracePeriod(ctx context.Context, hc *hyperv1.HostedCluster) (time.Duration, error) {
	asked := hc.Annotations[hyperv1.HCDestroyGracePeriodAnnotation]
	if asked == "" {
		return 0, nil
	}
	period, err := time.ParseDuration(asked)
	if err != nil || period <= 0 {
		r.Log.Warn("HostedCluster has a grace period that is none", "hostedCluster", hc.Namespace+"/"+hc.Name, "value", asked)
		return 0, nil
	}
	since := time.Now()
	if c := find(hc.Status.Conditions, hyperv1.HostedClusterDestroyed); c.isTrue() {
		since = c.LastTransitionTime.Time
	}
	status := *hc.Status.DeepCopy()
	conditions{list: &status.Conditions, now: metav1.NewTime(since), generation: hc.Generation}.yes(hyperv1.HostedClusterDestroyed,
		hyperv1.WaitingForGracePeriodReason, "HostedCluster is destroyed and awaits its grace period of "+period.String())
	if err := r.writeStatus(ctx, hc, &Observed{}, status); err != nil {
		return 0, err
	}
	return max(0, period-time.Since(since)), nil
}
