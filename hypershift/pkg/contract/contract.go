// Package contract holds the names that HyperShift gives to things on a management cluster: namespaces, secrets,
// finalizers, annotations and field managers, plus the annotations that steer the local runtime. Consumers above
// HostedCluster and NodePool rely on these; the runtime must never invent another.
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
	// FidelityAnnotation is "process" or "status" and overrides --fidelity for one cluster. It is read when the control
	// plane is made and has no effect later.
	FidelityAnnotation = "runtime.hcpmesh.io/fidelity"
	// FaultAnnotation is a comma-separated list of faults to inject.
	FaultAnnotation = "runtime.hcpmesh.io/faults"
	// AutoscaleAnnotation is the number of nodes that a node pool's load asks for, clamped to its autoscaling range.
	// Without it the pods of the hosted cluster say so, where there is a real one.
	AutoscaleAnnotation = "runtime.hcpmesh.io/autoscale-to"
	// UnhealthyAnnotation is a comma-separated list of a node pool's nodes whose kubelets stop reporting. It counts for as
	// long as it names them; a node that replaced another has a name of its own.
	UnhealthyAnnotation = "runtime.hcpmesh.io/unhealthy-nodes"
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

// PKIManager is the field manager of the control plane's PKI operator.
const PKIManager = "control-plane-pki-operator"

// SignerClass is a class of break-glass credentials. Each has a signer of its own.
type SignerClass string

// The signer classes.
const (
	CustomerBreakGlass SignerClass = "customer-break-glass"
	SREBreakGlass      SignerClass = "sre-break-glass"
)

// SignerClasses are all there are.
func SignerClasses() []SignerClass { return []SignerClass{CustomerBreakGlass, SREBreakGlass} }

// stem is what the names of a class's objects begin with.
func (c SignerClass) stem() string { return strings.TrimSuffix(string(c), "-break-glass") }

// SignerSecret holds the class's certificate authority, key included.
func (c SignerClass) SignerSecret() string { return c.stem() + "-system-admin-signer" }

// TrustConfigMap holds the authorities of the class that are trusted.
func (c SignerClass) TrustConfigMap() string { return c.stem() + "-system-admin-signer-ca" }

// ClientSecret holds a client certificate of the class that is renewed all the time.
func (c SignerClass) ClientSecret() string { return c.stem() + "-system-admin-client-cert-key" }

// CommonNamePrefix is what the common name of every certificate of the class begins with.
func (c SignerClass) CommonNamePrefix() string { return "system:" + string(c) + ":" }

// signerDomain is what the names of HyperShift's signers begin with.
const signerDomain = "hypershift.openshift.io/"

// SignerName is the class's signer in a control plane, as certificate signing requests name it.
func (c SignerClass) SignerName(controlPlane string) string {
	return signerDomain + controlPlane + "." + string(c)
}

// ParseSignerName finds the control plane and class of a signer; ok is false if it is none of these.
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

// Annotations of certificates, which OpenShift's rotation shares.
const (
	NotBeforeAnnotation = "auth.openshift.io/certificate-not-before"
	NotAfterAnnotation  = "auth.openshift.io/certificate-not-after"
	IssuerAnnotation    = "auth.openshift.io/certificate-issuer"
	// ForceRegeneration is the value of NotAfterAnnotation that has a certificate made anew.
	ForceRegeneration = "force-regeneration"
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
		certificatesv1.AddToScheme, certificatesv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, nil
}
