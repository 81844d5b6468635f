package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
)

// TestReadIsNeverLaxerThanRBAC asks a real API server about each verb on each of its resources and subresources, and about secrets and
// paths. What the mode read permits, RBAC permits to the group of readers. The mode may be stricter.
func TestReadIsNeverLaxerThanRBAC(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real API server; run without -short")
	}
	cluster, err := kubeapitest.Open(t.Context())
	if errors.Is(err, kubeapitest.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	group := adminv1.LevelReader.Organization()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}}}
	for _, rule := range readrules.Rules() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{rule.Group}, Resources: rule.Resources, Verbs: readrules.Verbs()})
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}}
	_, err = admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if _, bindErr := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil || bindErr != nil {
		t.Fatal(err, bindErr)
	}
	lists, err := admin.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all, err := admin.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	checked, permits := 0, 0
	for _, list := range append(lists, all) {
		apiGroup, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			apiGroup = ""
		}
		for _, resource := range list.APIResources {
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy", "impersonate", "bind", "escalate", "connect"} {
				name, sub, _ := strings.Cut(resource.Name, "/")
				r := &Request{IsResource: true, Verb: verb, Method: methodOf(verb), Group: apiGroup, Resource: name, Subresource: sub}
				permitted := Decide(adminv1.AccessRead, r) == nil
				checked++
				if !permitted {
					continue
				}
				permits++
				attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: apiGroup, Resource: name, Subresource: sub}
				if !allows(t, ctx, admin, group, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: attributes}) {
					t.Errorf("RBAC does not permit %s of %s, the mode read does", verb, r.Kind())
				}
			}
		}
	}
	for _, path := range append(readPaths, "/openapi/v3", "/healthz/etcd", "/logs", "/debug/pprof") {
		permitted := Decide(adminv1.AccessRead, &Request{Verb: "get", Method: "GET", Path: path}) == nil
		if permitted && !allows(t, ctx, admin, group, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path}}) {
			t.Errorf("RBAC does not permit %s, the mode read does", path)
		}
	}
	if permits < 100 || checked < 500 {
		t.Errorf("only %d of %d combinations are permitted", permits, checked)
	}
}

func methodOf(verb string) string {
	return map[string]string{"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}[verb]
}

func allows(t *testing.T, ctx context.Context, admin kubernetes.Interface, group string, spec authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	spec.User, spec.Groups = "system:sre-break-glass:alice", []string{group, "system:authenticated"}
	review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
