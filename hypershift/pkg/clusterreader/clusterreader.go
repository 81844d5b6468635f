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

	"github.com/hcpmesh/hcpmesh/internal/readrules"
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

// rules returns the rules of package readrules. Non-resource URLs are readable as in OpenShift, for example /metrics.
func rules() []*applyrbacv1.PolicyRuleApplyConfiguration {
	var all []*applyrbacv1.PolicyRuleApplyConfiguration
	for _, rule := range readrules.HostedCluster() {
		all = append(all, applyrbacv1.PolicyRule().WithAPIGroups(rule.Group).WithResources(rule.Resources...).WithVerbs(readrules.Verbs()...))
	}
	return append(all, applyrbacv1.PolicyRule().WithNonResourceURLs("*").WithVerbs("get"))
}
