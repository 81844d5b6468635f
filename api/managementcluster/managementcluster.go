// Package managementcluster names the labels and annotations of the objects that Cluster Service creates on management
// clusters, as far as other programs read them, and HyperShift's names on which several programs depend.
package managementcluster

import "strings"

// Labels of every object and of every Maestro bundle of a cluster.
const (
	// LabelClusterID is the identifier of the cluster below ARM.
	LabelClusterID = "api.openshift.com/id"
	// LabelClusterName is the name of the cluster.
	LabelClusterName = "api.openshift.com/name"
	// LabelEnvironment is the environment of the region, for example "prod".
	LabelEnvironment = "api.openshift.com/environment"
)

const (
	// AnnotationClusterResourceID is the ARM resource ID of the cluster, on its HostedCluster.
	AnnotationClusterResourceID = "azure.microsoft.com/hcp-cluster-azure-resource-id"
	// AnnotationNodePoolResourceID is the ARM resource ID of the node pool, on its NodePool.
	AnnotationNodePoolResourceID = "azure.microsoft.com/node-pool-azure-resource-id"
)

// PermanentFinalizers are the beginnings of the finalizers of controllers that every management cluster runs. Cluster
// Service refuses to remove them, because their controllers still have something to delete.
func PermanentFinalizers() []string {
	return []string{"hypershift.openshift.io/", "cluster.open-cluster-management.io/", "work.open-cluster-management.io/",
		"cluster.cluster.x-k8s.io", "machine.cluster.x-k8s.io", "azuremachine.", "kubernetes", "foregroundDeletion", "orphan"}
}

// ControlPlaneNamespace returns HyperShift's name of the namespace of a HostedCluster's control plane.
func ControlPlaneNamespace(namespace, name string) string {
	return namespace + "-" + strings.ReplaceAll(name, ".", "-")
}

// Names of objects in the namespace of a control plane. They are HyperShift's.
const (
	// APIServerService is the Service of the API server, for clients inside the management cluster. It has one port.
	APIServerService = "kube-apiserver"
	// RootAuthorityConfigMap has the certificate of the authority that signs the serving certificates of the control plane, in the key
	// RootAuthorityKey.
	RootAuthorityConfigMap = "root-ca"
	RootAuthorityKey       = "ca.crt"
)
