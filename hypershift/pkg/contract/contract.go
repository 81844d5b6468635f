// Package contract defines the names that HyperShift uses on a management cluster: namespaces, secrets, finalizers,
// annotations and field managers. It also defines the annotations that control the local runtime. Consumers of
// HostedCluster and NodePool rely on HyperShift's names; the runtime must never add one that HyperShift does not use.
package contract

import (
	"strings"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
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
	AzureResourceIDAnnotation  = managementcluster.AnnotationClusterResourceID
	CurrentConfigAnnotation    = "hypershift.openshift.io/nodePoolCurrentConfig"
	CurrentConfigVersion       = "hypershift.openshift.io/nodePoolCurrentConfigVersion"
	CurrentTemplateAnnotation  = "hypershift.openshift.io/nodePoolPlatformMachineTemplate"
)

// Annotations that only the local runtime reads, on a HostedCluster or NodePool.
const (
	// FidelityAnnotation overrides --fidelity for one cluster. It is read when the control plane is created and has no
	// effect later.
	FidelityAnnotation = "runtime.hcpmesh.io/fidelity"
	// FaultAnnotation is a comma-separated list of faults to inject.
	FaultAnnotation = "runtime.hcpmesh.io/faults"
	// AutoscaleAnnotation is the number of nodes that the load of a node pool needs, limited to its autoscaling range.
	// Without the annotation the number follows from the pods of the hosted cluster, if it has a real API server.
	AutoscaleAnnotation = "runtime.hcpmesh.io/autoscale-to"
	// UnhealthyAnnotation is a comma-separated list of a node pool's nodes whose kubelets stop reporting. It applies to
	// a node as long as it names the node. A replacement node has another name.
	UnhealthyAnnotation = "runtime.hcpmesh.io/unhealthy-nodes"
)

// Labels of objects that the runtime creates in a control-plane namespace.
const (
	// MachinesLabel is on the ConfigMap that stores a node pool's machines; its value is the NodePool's name.
	MachinesLabel = "runtime.hcpmesh.io/machines-of"
)

// ControlPlaneNamespace returns the namespace of the control plane of a HostedCluster.
func ControlPlaneNamespace(namespace, name string) string {
	return managementcluster.ControlPlaneNamespace(namespace, name)
}

// Names of secrets and configmaps in the control-plane namespace.
const (
	RootCASecret      = "root-ca"
	ServingCertSecret = "kas-server-crt"
	AdminClientSecret = "system-admin-client"
	// KubeletClientSecret holds the certificate with which the hosted API server connects to kubelets.
	KubeletClientSecret     = "kas-kubelet-client-crt"
	ServiceAccountKeySecret = "sa-signing-key"
	AdminKubeconfigSecret   = "admin-kubeconfig"
	KubeadminPasswordSecret = "kubeadmin-password"
	PullSecret              = "pull-secret"
	// EncryptionKeySecret holds the keys with which the hosted API server encrypts Secrets and ConfigMaps in etcd.
	EncryptionKeySecret    = kubeapi.HostedEncryptionSecret
	ClientCAConfigMap      = "client-ca"
	TotalClientCAConfigMap = "total-client-ca"
	// CABundleKey is the key of every trust bundle in a ConfigMap.
	CABundleKey = "ca-bundle.crt"
)

// PKIManager is the field manager of the control plane's PKI operator.
const PKIManager = "control-plane-pki-operator"

// SignerClass is a class of break-glass credentials. Each class has its own signer.
type SignerClass string

// The signer classes.
const (
	CustomerBreakGlass SignerClass = "customer-break-glass"
	SREBreakGlass      SignerClass = "sre-break-glass"
)

// SignerClasses returns all signer classes.
func SignerClasses() []SignerClass { return []SignerClass{CustomerBreakGlass, SREBreakGlass} }

// stem returns the common prefix of the names of the class's objects.
func (c SignerClass) stem() string { return strings.TrimSuffix(string(c), "-break-glass") }

// SignerSecret returns the name of the secret with the class's certificate authority and its key.
func (c SignerClass) SignerSecret() string { return c.stem() + "-system-admin-signer" }

// TrustConfigMap returns the name of the ConfigMap with the trusted authorities of the class.
func (c SignerClass) TrustConfigMap() string { return c.stem() + "-system-admin-signer-ca" }

// ClientSecret returns the name of the secret with a client certificate of the class that the operator renews
// continuously.
func (c SignerClass) ClientSecret() string { return c.stem() + "-system-admin-client-cert-key" }

// CommonNamePrefix returns the prefix of the common name of all certificates of the class.
func (c SignerClass) CommonNamePrefix() string { return "system:" + string(c) + ":" }

// signerDomain is the prefix of the names of HyperShift's signers.
const signerDomain = "hypershift.openshift.io/"

// SignerName returns the name of the class's signer in a control plane, as in spec.signerName of certificate signing
// requests.
func (c SignerClass) SignerName(controlPlane string) string {
	return signerDomain + controlPlane + "." + string(c)
}

// ParseSignerName returns the control plane and the class of a signer name. ok is false if the name is not of such a
// signer.
func ParseSignerName(name string) (controlPlane string, class SignerClass, ok bool) {
	rest, ok := strings.CutPrefix(name, signerDomain)
	if !ok {
		return "", "", false
	}
	for _, class := range SignerClasses() {
		if controlPlane, ok := strings.CutSuffix(rest, "."+string(class)); ok && controlPlane != "" {
			return controlPlane, class, true
		}
	}
	return "", "", false
}

// Annotations of certificates, which OpenShift's certificate rotation also uses.
const (
	NotBeforeAnnotation = "auth.openshift.io/certificate-not-before"
	NotAfterAnnotation  = "auth.openshift.io/certificate-not-after"
	IssuerAnnotation    = "auth.openshift.io/certificate-issuer"
	// ForceRegeneration is a value of NotAfterAnnotation that requests a new certificate.
	ForceRegeneration = "force-regeneration"
)

// AdminKubeconfig returns the name of the copy of the administrator's kubeconfig in the HostedCluster's namespace.
func AdminKubeconfig(hostedCluster string) string { return hostedCluster + "-admin-kubeconfig" }

// CustomKubeconfig returns the name of the kubeconfig for the cluster's own API DNS name, in the HostedCluster's
// namespace.
func CustomKubeconfig(hostedCluster string) string { return hostedCluster + "-custom-admin-kubeconfig" }

// KubeadminPassword returns the name of the copy of the initial password in the HostedCluster's namespace.
func KubeadminPassword(hostedCluster string) string { return hostedCluster + "-kubeadmin-password" }

// NewScheme returns a scheme with every type that the runtime reads or writes, on the management cluster and in hosted
// clusters.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(hyperv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, nil
}
