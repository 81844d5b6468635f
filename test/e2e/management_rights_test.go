package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestKubeconfigsHaveOnlyTheirRights asks the API server of each management cluster which user and groups each kubeconfig of the region
// has. A client that is not an administrator on AKS has no group: its rights are those that package managementaccess gives its user.
func TestKubeconfigsHaveOnlyTheirRights(t *testing.T) {
	needsRegion(t)
	ctx := withTimeout(t, 5*time.Minute)
	const administrators = "system:masters"
	want := map[string][]string{
		"admin":              {"hcpctl", administrators},
		"controller-manager": {"system:kube-controller-manager", administrators},
		"hypershift":         {"hypershift", administrators},
		"oncall":             {"oncall@hcpmesh.local", administrators},
	}
	for _, user := range managementaccess.Users() {
		want[user] = []string{user}
	}
	for name, administrator := range region.Endpoints().Kubeconfigs {
		files := must.Get(filepath.Glob(filepath.Join(filepath.Dir(administrator), "*.kubeconfig")))(t)
		got := map[string][]string{}
		for _, file := range files {
			config := must.Get(clientcmd.BuildConfigFromFlags("", file))(t)
			clients := must.Get(kubernetes.NewForConfig(config))(t)
			review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%s: %v", filepath.Base(file), err)
			}
			user := review.Status.UserInfo
			groups := slices.DeleteFunc(user.Groups, func(group string) bool { return group == "system:authenticated" })
			got[strings.TrimSuffix(filepath.Base(file), ".kubeconfig")] = append([]string{user.Username}, groups...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("users and groups on %s (-want +got):\n%s", name, diff)
		}
	}
}
