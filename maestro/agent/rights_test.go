package agent

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// reviewCounter counts the requests for reviews of rights.
type reviewCounter struct {
	http.RoundTripper
	count atomic.Int32
}

func (c *reviewCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.Contains(request.URL.Path, "/authorization.k8s.io/") {
		c.count.Add(1)
	}
	return c.RoundTripper.RoundTrip(request)
}

// TestAgentReportsMissingRights takes the rights from a running agent and gives them back.
func TestAgentReportsMissingRights(t *testing.T) {
	config := managementCluster(t)
	client := must.Get(kubernetes.NewForConfig(config))(t)
	roles := client.RbacV1()
	user := rest.CopyConfig(config)
	var reviews reviewCounter
	user.Wrap(func(next http.RoundTripper) http.RoundTripper { reviews.RoundTripper = next; return &reviews })
	user.Impersonate = rest.ImpersonationConfig{UserName: "agent", Groups: []string{"system:authenticated"}}
	a := must.Get(New(Options{Consumer: "mgmt-1", MQTTAddress: "127.0.0.1:1", MQTTTLS: &tls.Config{}, Cluster: user}))(t)
	a.clusterReady.Store(true)
	now := time.Now()
	a.rights.now = func() time.Time { return now }
	a.rights.kinds = func() []schema.GroupResource { return []schema.GroupResource{{Resource: "secrets"}} }
	expect := func(reason, want string) {
		t.Helper()
		eventually.Soon(t, reason, func() error {
			now = now.Add(rightsInterval)
			if err := a.ClusterReady(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				return fmt.Errorf("%v, want %q", err, want)
			}
			return nil
		})
	}
	expect("without a role", "the agent may not get/list/watch/create/patch/delete appliedmanifestworks.work.open-cluster-management.io, get/list/watch/create/patch/delete secrets;")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"", "work.open-cluster-management.io"}, Resources: []string{"secrets", "appliedmanifestworks"}, Verbs: []string{"create", "patch", "delete"}}}}
	must.Get(roles.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "agent"}}}
	must.Get(roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	expect("with the role", "")
	now = now.Add(rightsInterval)
	reviews.count.Store(0)
	if err := a.ClusterReady(t.Context()); err != nil || reviews.count.Load() != 1 {
		t.Errorf("with all rights: %v after %d reviews, want 1", err, reviews.count.Load())
	}
	role.Rules[1].Resources = []string{"appliedmanifestworks"}
	must.Get(roles.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	expect("a part of the role is removed", "forbidden: the agent may not create/patch/delete secrets;")
	must.Do(t, roles.ClusterRoleBindings().Delete(t.Context(), "agent", metav1.DeleteOptions{}))
	expect("the binding is removed", "appliedmanifestworks.work.open-cluster-management.io")
	// The next run of the test has the same API server.
	must.Do(t, roles.ClusterRoles().Delete(t.Context(), "agent", metav1.DeleteOptions{}))
}
