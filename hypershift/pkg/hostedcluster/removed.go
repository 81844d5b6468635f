package hostedcluster

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A control plane can be removed although its HostedCluster stays: another client deletes the HostedControlPlane or its
// namespace. HyperShift completes that deletion and then builds the control plane again. The volumes of etcd belong to the
// namespace, and outlive the HostedControlPlane. So only the deletion of the namespace takes the data with it.

// finishRemoved ends the deletion of a HostedControlPlane whose HostedCluster stays. Afterwards the event of its deletion starts
// the pass that builds it again. Until then the HostedCluster keeps the conditions that it has, as in the real operator.
func (r *Reconciler) finishRemoved(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane) (time.Duration, error) {
	// Read past the cache: the namespace may have been deleted just now, together with the HostedControlPlane.
	var namespace corev1.Namespace
	err := r.Live.Get(ctx, client.ObjectKey{Name: hcp.Namespace}, &namespace)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("getting namespace %s: %w", hcp.Namespace, err)
	}
	withData := err != nil || !namespace.DeletionTimestamp.IsZero()
	gone, wait, err := r.finishControlPlane(ctx, hc, hcp, withData)
	if apierrors.IsNotFound(err) {
		return 0, nil // another pass or client was faster
	}
	if gone {
		r.Log.Warn("control plane removed by another client", logkey.HostedCluster, hc.Namespace+"/"+hc.Name, logkey.Namespace, hcp.Namespace,
			logkey.ResourceID, hc.Annotations[contract.AzureResourceIDAnnotation], logkey.DataLost, withData)
	}
	return wait, err
}

// deleteOwned deletes the objects that belong to a HostedControlPlane, as the garbage collector would do later. Otherwise the
// next HostedControlPlane could use objects that are deleted afterwards.
func (r *Reconciler) deleteOwned(ctx context.Context, hcp *hyperv1.HostedControlPlane) error {
	var writes []func() error
	collect := func(object client.Object) {
		if !isOwned(object, hcp) {
			return
		}
		writes = append(writes, func() error {
			if err := r.Management.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting %T %s of the HostedControlPlane: %w", object, object.GetName(), err)
			}
			return nil
		})
	}
	var secrets corev1.SecretList
	var maps corev1.ConfigMapList
	var components hyperv1.ControlPlaneComponentList
	for _, list := range []client.ObjectList{&secrets, &maps, &components} {
		if err := r.Live.List(ctx, list, client.InNamespace(hcp.Namespace)); err != nil {
			return fmt.Errorf("listing the objects of the HostedControlPlane: %w", err)
		}
	}
	for i := range secrets.Items {
		collect(&secrets.Items[i])
	}
	for i := range maps.Items {
		collect(&maps.Items[i])
	}
	for i := range components.Items {
		collect(&components.Items[i])
	}
	return runConcurrently(componentWriters, writes)
}

// namespaceProblem returns an error while the namespace of the control plane is being deleted. Nothing can be created in it. The
// event of its deletion starts the next pass.
func (r *Reconciler) namespaceProblem(ctx context.Context, name string) error {
	var namespace corev1.Namespace
	err := r.Management.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("getting namespace %s: %w", name, err)
	case !namespace.DeletionTimestamp.IsZero():
		return fmt.Errorf("namespace %s is being deleted; the control plane is created when it is gone", name)
	}
	return nil
}

// age returns the time since the creation of a control plane began: since that of the HostedCluster, or since a control plane was
// built again. The latter began at the phase in which the HostedControlPlane is created.
func (r *Reconciler) age(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, now time.Time) time.Duration {
	age := now.Sub(hc.CreationTimestamp.Time)
	if hcp != nil && hc.Annotations[contract.HasBeenAvailableAnnotation] != "" {
		age = min(age, now.Sub(hcp.CreationTimestamp.Time)+r.Scale.Start(schedule.Infrastructure))
	}
	return age
}
