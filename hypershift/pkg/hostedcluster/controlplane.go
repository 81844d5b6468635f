package hostedcluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mirroredAnnotations are the annotations of a HostedCluster that are copied to its HostedControlPlane.
var mirroredAnnotations = []string{hyperv1.CleanupCloudResourcesAnnotation, hyperv1.SwiftPodNetworkInstanceAnnotation, hyperv1.RestartDateAnnotation}

// mirroredLabels is the prefix of the labels of a HostedCluster that are copied to its HostedControlPlane.
const mirroredLabels = "api.openshift.com"

// createControlPlane creates the namespace of the control plane and the HostedControlPlane in it. An annotation of both
// names the HostedCluster, so that their events can be assigned to it: an owner reference cannot cross namespaces.
func (r *Reconciler) createControlPlane(ctx context.Context, hc *hyperv1.HostedCluster, namespace string) (*hyperv1.HostedControlPlane, error) {
	if err := r.ensureNamespace(ctx, hc, namespace); err != nil {
		return nil, err
	}
	fidelity := r.Fidelity
	if asked := hc.Annotations[contract.FidelityAnnotation]; asked != "" {
		var err error
		if fidelity, err = contract.ParseFidelity(asked); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", contract.FidelityAnnotation, err)
		}
	}
	hcp := &hyperv1.HostedControlPlane{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: hc.Name,
			Labels:     map[string]string{"cluster.x-k8s.io/cluster-name": hc.Spec.InfraID},
			Finalizers: []string{contract.Finalizer},
			// The fidelity does not change later: a control plane with data must not become one without.
			Annotations: map[string]string{contract.HostedClusterAnnotation: hc.Namespace + "/" + hc.Name, contract.FidelityAnnotation: string(fidelity)},
		},
	}
	fillControlPlane(hcp, hc)
	hcp.Spec.ReleaseImage = hc.Spec.Release.Image
	err := r.Management.Create(ctx, hcp, operatorManager)
	if apierrors.IsAlreadyExists(err) {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(hcp), hcp)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the HostedControlPlane: %w", err)
	}
	return hcp, nil
}

func (r *Reconciler) ensureNamespace(ctx context.Context, hc *hyperv1.HostedCluster, name string) error {
	namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			contract.HostedControlPlaneLabel:                 "true",
			"pod-security.kubernetes.io/enforce":             "restricted",
			"pod-security.kubernetes.io/audit":               "restricted",
			"pod-security.kubernetes.io/warn":                "restricted",
			"security.openshift.io/scc.podSecurityLabelSync": "false",
			"hypershift.openshift.io/monitoring":             "true",
		},
		Annotations: map[string]string{contract.HostedClusterAnnotation: hc.Namespace + "/" + hc.Name},
	}}
	var existing corev1.Namespace
	err := r.Management.Get(ctx, client.ObjectKey{Name: name}, &existing)
	if apierrors.IsNotFound(err) {
		err = r.Management.Create(ctx, &namespace, operatorManager)
		if apierrors.IsAlreadyExists(err) {
			err = r.Live.Get(ctx, client.ObjectKey{Name: name}, &existing)
		}
	}
	if err != nil {
		return fmt.Errorf("ensuring namespace %s: %w", name, err)
	}
	if !existing.DeletionTimestamp.IsZero() {
		return fmt.Errorf("namespace %s of a previous incarnation of the cluster is still being deleted", name)
	}
	return nil
}

// updateControlPlane copies changes of the HostedCluster to its HostedControlPlane.
func (r *Reconciler) updateControlPlane(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) error {
	base := hcp.DeepCopy()
	fillControlPlane(hcp, hc)
	if o.Installing == o.Desired {
		hcp.Spec.ReleaseImage = hc.Spec.Release.Image
	}
	if equality.Semantic.DeepEqual(base.Spec, hcp.Spec) && equality.Semantic.DeepEqual(base.ObjectMeta, hcp.ObjectMeta) {
		return nil
	}
	if err := r.Management.Patch(ctx, hcp, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("updating the HostedControlPlane: %w", err)
	}
	return nil
}

// fillControlPlane copies the HostedCluster's spec field by field, as the operator does. It excludes the release image,
// which decideRelease decides.
func fillControlPlane(hcp *hyperv1.HostedControlPlane, hc *hyperv1.HostedCluster) {
	spec := hc.Spec.DeepCopy()
	hcp.Spec = hyperv1.HostedControlPlaneSpec{
		ReleaseImage:                     hcp.Spec.ReleaseImage,
		UpdateService:                    spec.UpdateService,
		Channel:                          spec.Channel,
		PullSecret:                       corev1.LocalObjectReference{Name: contract.PullSecret},
		IssuerURL:                        spec.IssuerURL,
		Networking:                       spec.Networking,
		SSHKey:                           spec.SSHKey,
		ClusterID:                        spec.ClusterID,
		InfraID:                          spec.InfraID,
		Platform:                         spec.Platform,
		DNS:                              spec.DNS,
		ServiceAccountSigningKey:         spec.ServiceAccountSigningKey,
		ControllerAvailabilityPolicy:     spec.ControllerAvailabilityPolicy,
		InfrastructureAvailabilityPolicy: spec.InfrastructureAvailabilityPolicy,
		FIPS:                             spec.FIPS,
		KubeAPIServerDNSName:             spec.KubeAPIServerDNSName,
		Services:                         spec.Services,
		AuditWebhook:                     spec.AuditWebhook,
		Etcd:                             spec.Etcd,
		Configuration:                    spec.Configuration,
		OperatorConfiguration:            spec.OperatorConfiguration,
		ImageContentSources:              spec.ImageContentSources,
		AdditionalTrustBundle:            spec.AdditionalTrustBundle,
		SecretEncryption:                 spec.SecretEncryption,
		PausedUntil:                      spec.PausedUntil,
		OLMCatalogPlacement:              spec.OLMCatalogPlacement,
		Autoscaling:                      spec.Autoscaling,
		AutoNode:                         spec.AutoNode,
		NodeSelector:                     spec.NodeSelector,
		Tolerations:                      spec.Tolerations,
		Labels:                           spec.Labels,
		Capabilities:                     spec.Capabilities,
	}
	for name, value := range hc.Labels {
		if strings.HasPrefix(name, mirroredLabels) {
			hcp.Labels[name] = value
		}
	}
	for _, name := range mirroredAnnotations {
		if value, ok := hc.Annotations[name]; ok {
			hcp.Annotations[name] = value
		} else {
			delete(hcp.Annotations, name)
		}
	}
}
