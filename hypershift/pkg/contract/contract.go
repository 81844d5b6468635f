// Package contract holds the names that HyperShift gives to things on a management cluster: namespaces, secrets,
// finalizers, annotations and field managers, plus the annotations that steer the local runtime. Consumers above
// HostedCluster and NodePool rely on these; the runtime must never invent another.
package contract

import (
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Field managers, as they appear in metadata.managedFields.
const (
	OperatorManager     = "hypershift-operator-manager"
	ControlPlaneManager = "control-plane-operator-manager"
)

// Finalizer is on HostedClusters, HostedControlPlanes and NodePools.
const Finalizer = "hypershift.openshift.io/finalizer"

// Labels and annotations of HyperShift.
const (
	HostedControlPlaneLabel    = "hypershift.openshift.io/hosted-control-plane"
	HostedClusterAnnotation    = "hypershift.openshift.io/cluster"
	HasBeenAvailableAnnotation = "hypershift.openshift.io/HasBeenAvailable"
	ReferencedResourcePrefix   = "referenced-resource.hypershift.openshift.io/"
	AzureResourceIDAnnotation  = "azure.microsoft.com/hcp-cluster-azure-resource-id"
	CurrentConfigAnnotation    = "hypershift.openshift.io/nodePoolCurrentConfig"
	CurrentConfigVersion       = "hypershift.openshift.io/nodePoolCurrentConfigVersion"
	CurrentTemplateAnnotation  = "hypershift.openshift.io/nodePoolPlatformMachineTemplate"
)

// Annotations that only the local runtime reads, on a HostedCluster or NodePool.
const (
	// FidelityAnnotation is "process" or "status" and overrides --fidelity for one cluster. It is read when the control
	// plane is made and has no effect later.
	FidelityAnnotation = "runtime.hcpmesh.io/fidelity"
	// FaultAnnotation is a comma-separated list of faults to inject.
	FaultAnnotation = "runtime.hcpmesh.io/faults"
	// AutoscaleAnnotation is the number of nodes that a node pool's load asks for, clamped to its autoscaling range.
	AutoscaleAnnotation = "runtime.hcpmesh.io/autoscale-to"
)

// Labels on what the runtime makes in a control-plane namespace.
const (
	// MachinesLabel is on the ConfigMap that records a node pool's machines; its value is the NodePool's name.
	MachinesLabel = "runtime.hcpmesh.io/machines-of"
)

// ControlPlaneNamespace is where the control plane of a HostedCluster lives.
func ControlPlaneNamespace(namespace, name string) string {
	return namespace + "-" + strings.ReplaceAll(name, ".", "-")
}

// Names of secrets and configmaps in the control-plane namespace.
const (
	RootCASecret            = "root-ca"
	ServingCertSecret       = "kas-server-crt"
	AdminClientSecret       = "system-admin-client"
	ServiceAccountKeySecret = "sa-signing-key"
	AdminKubeconfigSecret   = "admin-kubeconfig"
	KubeadminPasswordSecret = "kubeadmin-password"
	PullSecret              = "pull-secret"
	ClientCAConfigMap       = "client-ca"
	TotalClientCAConfigMap  = "total-client-ca"
	// CABundleKey is the key of every trust bundle in a ConfigMap.
	CABundleKey = "ca-bundle.crt"
)

// AdminKubeconfig is the copy of the administrator's kubeconfig beside the HostedCluster.
func AdminKubeconfig(hostedCluster string) string { return hostedCluster + "-admin-kubeconfig" }

// CustomKubeconfig is the kubeconfig for the cluster's own API DNS name, beside the HostedCluster.
func CustomKubeconfig(hostedCluster string) string { return hostedCluster + "-custom-admin-kubeconfig" }

// KubeadminPassword is the copy of the initial password beside the HostedCluster.
func KubeadminPassword(hostedCluster string) string { return hostedCluster + "-kubeadmin-password" }

// NewScheme returns a scheme with every type that the runtime reads or writes, on the management cluster and in hosted
// clusters.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(hyperv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme,
		certificatesv1.AddToScheme, apiextensionsv1.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, nil
}
