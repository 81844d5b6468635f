package release

// ControlPlaneComponents are the names of the parts of a hosted control plane on Azure that HyperShift reports of, one
// ControlPlaneComponent each, in order. Which of them a control plane has depends on its release, on the fidelity of the local
// runtime, and on what the cluster needs, as the autoscaler: it is for those that exist to report.
//
// Source: the components that HyperShift's control-plane operator registers (controllers/hostedcontrolplane/v2), those that its
// operator adds for machines, and without those of other platforms and of catalogues, which run in the customer's cluster.
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
