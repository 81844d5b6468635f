package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// testExternalAuth creates, lists, changes and deletes an external authentication.
func testExternalAuth(t *testing.T, ctx context.Context, c *customer.Customer, cluster string) {
	id := c.ExternalAuthID(cluster, "entra")
	created, err := c.Put(ctx, id, c.ExternalAuthBody())
	if err != nil {
		t.Fatal(err)
	}
	if state := property(created, "provisioningState"); state != "Succeeded" {
		t.Errorf("provisioningState %v", state)
	}
	if conditions, _ := property(created, "status", "conditions").([]any); len(conditions) != 3 ||
		conditions[0].(map[string]any)["type"] != "Available" || conditions[0].(map[string]any)["status"] != "True" {
		t.Errorf("conditions are %v, want Available=True and two more", conditions)
	}
	names, err := c.List(ctx, c.ClusterID(cluster)+"/externalAuths")
	if err != nil || !slices.Equal(names, []string{"entra"}) {
		t.Errorf("listing returned %v, %v", names, err)
	}
	patch := armresources.GenericResource{Properties: map[string]any{
		"claim": map[string]any{"mappings": map[string]any{"username": map[string]any{"claim": "upn"}}},
	}}
	if _, err := c.Patch(ctx, id, patch); err != nil {
		t.Fatal(err)
	}
	got, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	if claim := property(got.GenericResource, "claim", "mappings", "username", "claim"); claim != "upn" {
		t.Errorf("username claim is %v after the PATCH", claim)
	}
	if err := c.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		t.Errorf("GET after the deletion returned %v", err)
	}
}

// testAdminCredential requests an admin credential, uses it at the hosted API server and revokes it.
func testAdminCredential(t *testing.T, ctx context.Context, c *customer.Customer, id string) {
	request := func() *kubernetes.Clientset {
		t.Helper()
		key, signing, err := credential.Request()
		if err != nil {
			t.Fatal(err)
		}
		var issued struct {
			Kubeconfig          string    `json:"kubeconfig"`
			ExpirationTimestamp time.Time `json:"expirationTimestamp"`
		}
		if err := c.Act(ctx, id, "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, &issued); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(issued.Kubeconfig, "client-key") {
			t.Error("the response contains a private key")
		}
		if validity := time.Until(issued.ExpirationTimestamp); validity <= 0 || validity > 25*time.Hour {
			t.Errorf("the credential is valid for %s", validity)
		}
		kubeconfig, err := credential.WithKey([]byte(issued.Kubeconfig), key)
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		administrator, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := administrator.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatalf("using the credential: %v", err)
		}
		return administrator
	}
	before := request()
	if err := c.Act(ctx, id, "revokeCredentials", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := before.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("using a revoked credential: %v", err)
	}
	request() // credentials after the revocation work
}
