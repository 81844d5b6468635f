# Changes the sources of the HyperShift operator and of its dependencies, so that they compile with the versions of go.mod.

# The API has karpenter's version v1 only, and spec.autoNode is not a pointer.
s|hypershift/api/karpenter/v1beta1"|hypershift/api/karpenter/v1"|
s|func IsKarpenterEnabled(autoNode \*|func IsKarpenterEnabled(autoNode |
/return autoNode != nil &&$/{
	N
	s|autoNode != nil &&\n\t*||
}
/autoNode.Provisioner.Karpenter != nil &&/d

# Kubernetes 0.35: the environment of CEL has one argument.
s|MustBaseEnvSet(envVersion, true)|MustBaseEnvSet(envVersion)|

# controller-runtime 0.23: webhooks have a type parameter, and unmanaged controllers need no manager.
/ctrl\.NewWebhookManagedBy(mgr)\.$/{
	N
	s|(mgr)\.\n\t*For(\([^()]*\))|(mgr, \1)|
}
s|^\t\tWithDefaulter(|\t\tWithCustomDefaulter(|
s|^\t\tWithValidator(|\t\tWithCustomValidator(|
s|^var _ webhook\.Validator = .*|var _ webhook.CustomValidator|
s|controller\.NewUnmanaged("proxy", mgr, |controller.NewUnmanaged("proxy", |

# ClusterImagePolicy has left v1alpha1 of the API of OpenShift.
s|\*configv1alpha1\.ClusterImagePolicy|*configv1.ClusterImagePolicy|

# Kubernetes 0.34: fuzzers are those of randfill.
s|fuzz "github.com/google/gofuzz"|fuzz "sigs.k8s.io/randfill"|
s|\*fuzz\.Fuzzer |*fuzz.Filler |
s/\b\(c\|fuzzer\)\.Fuzz(/\1.Fill(/
