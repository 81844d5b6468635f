package hostedclient

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hcpmesh/hcpmesh/internal/readrules"
)

// ReaderGroup is the group of readers. ReaderRole and ReaderBinding are the names of OpenShift's ClusterRole and
// ClusterRoleBinding.
const (
	ReaderGroup   = "system:cluster-readers"
	ReaderRole    = "cluster-reader"
	ReaderBinding = "cluster-readers"
)

// readerManager is the field manager of both objects.
const readerManager = "hcpmesh-cluster-reader"

// EnsureReaders gives the group of readers the right to read a hosted cluster, as OpenShift does: everything but Secrets.
// Certificates of SREs with the level reader are for this group. A hosted API server of the local runtime has none of
// OpenShift's operators, so the runtime applies the role and its binding after each start of a server. EnsureReaders
// overwrites fields that somebody else has changed.
func EnsureReaders(ctx context.Context, hosted kubernetes.Interface) error {
	options := metav1.ApplyOptions{FieldManager: readerManager, Force: true}
	role := applyrbacv1.ClusterRole(ReaderRole).WithRules(readerRules()...)
	if _, err := hosted.RbacV1().ClusterRoles().Apply(ctx, role, options); err != nil {
		return fmt.Errorf("applying ClusterRole %s: %w", ReaderRole, err)
	}
	binding := applyrbacv1.ClusterRoleBinding(ReaderBinding).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(ReaderRole)).
		WithSubjects(applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(ReaderGroup))
	if _, err := hosted.RbacV1().ClusterRoleBindings().Apply(ctx, binding, options); err != nil {
		return fmt.Errorf("applying ClusterRoleBinding %s: %w", ReaderBinding, err)
	}
	return nil
}

// readerRules returns the rules of package readrules. Non-resource URLs are readable as in OpenShift, for example /metrics.
func readerRules() []*applyrbacv1.PolicyRuleApplyConfiguration {
	var all []*applyrbacv1.PolicyRuleApplyConfiguration
	for _, rule := range readrules.HostedCluster() {
		all = append(all, applyrbacv1.PolicyRule().WithAPIGroups(rule.Group).WithResources(rule.Resources...).WithVerbs(readrules.Verbs()...))
	}
	return append(all, applyrbacv1.PolicyRule().WithNonResourceURLs("*").WithVerbs("get"))
}
