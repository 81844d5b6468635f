package hostedcluster

import (
	"context"
	"fmt"
	"net"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
)

// ensureRootAuthority writes the ConfigMap with the certificate of the control plane's authority, for clients inside the management
// cluster that may not read Secrets.
func (r *Reconciler) ensureRootAuthority(ctx context.Context, hcp *hyperv1.HostedControlPlane, certificate []byte) error {
	key := client.ObjectKey{Namespace: hcp.Namespace, Name: managementcluster.RootAuthorityConfigMap}
	var current corev1.ConfigMap
	err := r.Management.Get(ctx, key, &current)
	if apierrors.IsNotFound(err) {
		current = corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}},
			Data:       map[string]string{managementcluster.RootAuthorityKey: string(certificate)},
		}
		if err = r.Management.Create(ctx, &current, controlPlaneManager); apierrors.IsAlreadyExists(err) {
			err = r.Live.Get(ctx, key, &current)
		}
	}
	if err != nil {
		return fmt.Errorf("ensuring ConfigMap %s: %w", key, err)
	}
	if current.Data[managementcluster.RootAuthorityKey] == string(certificate) {
		return nil
	}
	base := current.DeepCopy()
	current.Data = map[string]string{managementcluster.RootAuthorityKey: string(certificate)}
	if err := r.Management.Patch(ctx, &current, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
		return fmt.Errorf("updating ConfigMap %s: %w", key, err)
	}
	return nil
}

// ensureService writes the Service of an API server that runs as a process of this machine. It is an alias of the process's address,
// because a Service cannot have endpoints on the loopback interface. API servers that are pods have a Service already.
func (r *Reconciler) ensureService(ctx context.Context, hcp *hyperv1.HostedControlPlane, endpoint hyperv1.APIEndpoint) error {
	if net.ParseIP(endpoint.Host) == nil || endpoint.Port == 0 {
		return nil
	}
	want := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: endpoint.Host,
		Ports: []corev1.ServicePort{{Name: "client", Port: endpoint.Port, Protocol: corev1.ProtocolTCP}}}
	key := client.ObjectKey{Namespace: hcp.Namespace, Name: managementcluster.APIServerService}
	var current corev1.Service
	err := r.Management.Get(ctx, key, &current)
	if apierrors.IsNotFound(err) {
		current = corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")}},
			Spec:       want,
		}
		if err = r.Management.Create(ctx, &current, controlPlaneManager); apierrors.IsAlreadyExists(err) {
			err = r.Live.Get(ctx, key, &current)
		}
	}
	if err != nil {
		return fmt.Errorf("ensuring Service %s: %w", key, err)
	}
	if current.Spec.ExternalName == want.ExternalName && len(current.Spec.Ports) == 1 && current.Spec.Ports[0].Port == endpoint.Port {
		return nil
	}
	base := current.DeepCopy()
	current.Spec.ExternalName, current.Spec.Ports = want.ExternalName, want.Ports
	if err := r.Management.Patch(ctx, &current, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
		return fmt.Errorf("updating Service %s: %w", key, err)
	}
	return nil
}
