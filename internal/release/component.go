package release

// ControlPlaneComponents returns the names of all ControlPlaneComponents that a hosted control plane on Azure may have, sorted.
// Which of them exist depends on the release, on the fidelity of the local runtime, and on optional parts such as the
// autoscaler.
//
// Source: the components that HyperShift's control-plane operator registers (controllers/hostedcontrolplane/v2) and those that
// its operator adds for machines, without components of other platforms and of catalogues, which run in the customer's cluster.
func ControlPlaneComponents() []string {
	return []string{
		"azure-cloud-controller-manager",
		"capi-provider",
		"catalog-operator",
		"cloud-credential-operator",
		"cluster-api",
		"cluster-autoscaler",
		"cluster-image-registry-operator",
		"cluster-network-operator",
		"cluster-node-tuning-operator",
		"cluster-policy-controller",
		"cluster-storage-operator",
		"cluster-version-operator",
		"control-plane-operator",
		"control-plane-pki-operator",
		"csi-snapshot-controller-operator",
		"dns-operator",
		"endpoint-resolver",
		"etcd",
		"featuregate-generator",
		"hosted-cluster-config-operator",
		"ignition-server",
		"ignition-server-proxy",
		"ingress-operator",
		"konnectivity-agent",
		"kube-apiserver",
		"kube-controller-manager",
		"kube-scheduler",
		"kube-storage-version-migrator",
		"machine-approver",
		"metrics-proxy",
		"oauth-openshift",
		"olm-collect-profiles",
		"olm-operator",
		"openshift-apiserver",
		"openshift-controller-manager",
		"openshift-oauth-apiserver",
		"openshift-route-controller-manager",
		"packageserver",
		"router",
	}
}
