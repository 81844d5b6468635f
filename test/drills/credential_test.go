package drills

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// forgetCredential removes a credential that the customer uses from the database of Cluster Service, as a restore to an earlier time would. The
// customer revokes its credentials.
func forgetCredential(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	id := r.customer.ClusterID(first)
	key, signing, err := credential.Request()
	if err != nil {
		t.Fatal(err)
	}
	var issued struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	must.Do(t, r.customer.Act(ctx, id, "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, &issued))
	kubeconfig := must.Get(credential.WithKey([]byte(issued.Kubeconfig), key))(t)
	config := must.Get(clientcmd.RESTConfigFromKubeConfig(kubeconfig))(t)
	config.Timeout = 10 * time.Second
	hostedClient := must.Get(kubernetes.NewForConfig(config))(t)
	r.sql(t, ctx, "DELETE FROM break_glass_credentials")
	eventually.Soon(t, "the customer uses the credential", func() error {
		_, err := hostedClient.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})

	return func() {
		if err := r.customer.Act(ctx, id, "revokeCredentials", nil, nil); err != nil {
			t.Error(err)
		}
	}
}
