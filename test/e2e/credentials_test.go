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

// authenticateElsewhere lives the life of an external authentication of a cluster.
func authenticateElsewhere(t *testing.T, ctx context.Context, c *customer.Customer, cluster string) {
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
		t.Errorf("its conditions are %v, want Available, which is True, and two more", conditions)
	}
	names, err := c.List(ctx, c.ClusterID(cluster)+"/externalAuths")
	if err != nil || !slices.Equal(names, []string{"entra"}) {
		t.Errorf("listing gave %v, %v", names, err)
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
		t.Errorf("the username's claim is %v after the PATCH", claim)
	}
	if err := c.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		t.Errorf("after the delete a GET gives %v", err)
	}
}

// useCredential requests an administrator's credential, uses it at the hosted API server, and revokes it.
func useCredential(t *testing.T, ctx context.Context, c *customer.Customer, id string) {
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
			t.Error("the answer holds a key that the customer did not send")
		}
		if life := time.Until(issued.ExpirationTimestamp); life <= 0 || life > 25*time.Hour {
			t.Errorf("the credential lives for %s", life)
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
			t.Fatalf("the credential does not work: %v", err)
		}
		return administrator
	}
	before := request()
	if err := c.Act(ctx, id, "revokeCredentials", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := before.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a revoked credential gives %v", err)
	}
	request() // the next ones are good again
}
