// Package clusterreader gives the group system:cluster-readers the right to read a hosted cluster, as OpenShift does: everything
// but Secrets. Certificates of SREs with the level reader are for this group. A hosted API server of the local runtime has none of
// OpenShift's operators, so the runtime applies the role and its binding after each start of a server.
package clusterreader

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// Group is the group of readers. Role and Binding are the names of OpenShift's ClusterRole and ClusterRoleBinding.
const (
	Group   = "system:cluster-readers"
	Role    = "cluster-reader"
	Binding = "cluster-readers"
)

// fieldManager is the field manager of both objects.
const fieldManager = "hcpmesh-cluster-reader"

// Ensure applies the role and its binding. It overwrites fields that somebody else has changed.
func Ensure(ctx context.Context, hosted kubernetes.Interface) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	role := applyrbacv1.ClusterRole(Role).WithRules(rules()...)
	if _, err := hosted.RbacV1().ClusterRoles().Apply(ctx, role, options); err != nil {
		return fmt.Errorf("applying ClusterRole %s: %w", Role, err)
	}
	binding := applyrbacv1.ClusterRoleBinding(Binding).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(Role)).
		WithSubjects(applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(Group))
	if _, err := hosted.RbacV1().ClusterRoleBindings().Apply(ctx, binding, options); err != nil {
		return fmt.Errorf("applying ClusterRoleBinding %s: %w", Binding, err)
	}
	return nil
}

// rules lists what readers may get, list and watch. A rule cannot exclude a resource, so all of them are listed: in the groups of
// Kubernetes everything but Secrets and the subresources with which one can act in a pod, and the resources of OpenShift's API
// groups without secrets. Non-resource URLs are readable as in OpenShift, for example /metrics.
func rules() []*applyrbacv1.PolicyRuleApplyConfiguration {
	read := func(group string, resources ...string) *applyrbacv1.PolicyRuleApplyConfiguration {
		return applyrbacv1.PolicyRule().WithAPIGroups(group).WithResources(resources...).WithVerbs("get", "list", "watch")
	}
	return []*applyrbacv1.PolicyRuleApplyConfiguration{
		read("", "bindings", "componentstatuses", "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status", "nodes", "nodes/status",
			"persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status", "pods", "pods/log", "pods/status",
			"podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status", "resourcequotas", "resourcequotas/status",
			"serviceaccounts", "services", "services/status"),
		read("admissionregistration.k8s.io", "*"),
		read("apiextensions.k8s.io", "*"),
		read("apiregistration.k8s.io", "*"),
		read("apps", "*"),
		read("autoscaling", "*"),
		read("batch", "*"),
		read("certificates.k8s.io", "*"),
		read("config.openshift.io", "*"),
		read("coordination.k8s.io", "*"),
		read("discovery.k8s.io", "*"),
		read("events.k8s.io", "*"),
		read("flowcontrol.apiserver.k8s.io", "*"),
		read("machineconfiguration.openshift.io", "machineconfigpools"),
		read("metrics.k8s.io", "*"),
		read("networking.k8s.io", "*"),
		read("node.k8s.io", "*"),
		read("operator.openshift.io", "*"),
		read("policy", "*"),
		read("rbac.authorization.k8s.io", "*"),
		read("scheduling.k8s.io", "*"),
		read("storage.k8s.io", "*"),
		applyrbacv1.PolicyRule().WithNonResourceURLs("*").WithVerbs("get"),
	}
}
