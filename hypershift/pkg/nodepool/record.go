package nodepool

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func recordKey(pool *hyperv1.NodePool) client.ObjectKey {
	return client.ObjectKey{Namespace: contract.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName), Name: "machines-" + pool.Name}
}

// readRecord returns the ConfigMap with the pool's machines; nil if it does not exist.
func (r *Reconciler) readRecord(ctx context.Context, pool *hyperv1.NodePool) (*corev1.ConfigMap, error) {
	var record corev1.ConfigMap
	err := r.Management.Get(ctx, recordKey(pool), &record)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of machines: %w", err)
	}
	return &record, nil
}

// writeRecord stores the machines and the autoscaler's decision. It fails with a conflict if the record was written
// since it was read.
func (r *Reconciler) writeRecord(ctx context.Context, pool *hyperv1.NodePool, record *corev1.ConfigMap, machines []Machine, scaling autoscaling) error {
	data, err := encodeMachines(machines)
	if err != nil {
		return err
	}
	if err := scaling.encode(data); err != nil {
		return err
	}
	if record == nil {
		key := recordKey(pool)
		record = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{contract.MachinesLabel: pool.Name}},
			Data:       data,
		}
		return r.Management.Create(ctx, record, operatorManager)
	}
	base := record.DeepCopy()
	record = record.DeepCopy()
	record.Data = data
	if err := r.Management.Patch(ctx, record, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("writing the record of machines: %w", err)
	}
	return nil
}
