package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
	created := must.Get(c.Put(ctx, id, c.ExternalAuthBody()))(t)
	if state := property(created, "provisioningState"); state != "Succeeded" {
		t.Errorf("provisioningState %v", state)
	}
	// The control plane tries to read the issuer's keys while the operation ends, so the failure is reported before or after its end.
	eventually.Before(ctx, t, "the conditions of the external authentication", func() error {
		got, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
		if err != nil {
			return err
		}
		return expectIssuerConditions(got.GenericResource)
	})
	names, err := c.List(ctx, c.ClusterID(cluster)+"/externalAuths")
	if err != nil || !slices.Equal(names, []string{"entra"}) {
		t.Errorf("listing returned %v, %v", names, err)
	}
	patch := armresources.GenericResource{Properties: map[string]any{
		"claim": map[string]any{"mappings": map[string]any{"username": map[string]any{"claim": "upn"}}},
	}}
	must.Get(c.Patch(ctx, id, patch))(t)
	got := must.Get(c.Resources.GetByID(ctx, id, customer.APIVersion, nil))(t)
	if claim := property(got.GenericResource, "claim", "mappings", "username", "claim"); claim != "upn" {
		t.Errorf("username claim is %v after the PATCH", claim)
	}
	must.Do(t, c.Delete(ctx, id))
	if _, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		t.Errorf("GET after the deletion returned %v", err)
	}
}

// expectIssuerConditions returns an error unless exactly the three conditions for customers are present. They state that the control plane cannot
// read the keys of the issuer. Only the egress proxy reports that, and control planes that are pods have none.
func expectIssuerConditions(auth armresources.GenericResource) error {
	want := map[string]string{"Available": "True AsExpected", "Progressing": "False AsExpected", "Degraded": "False AsExpected"}
	for name := range regionEndpoints.Ops {
		if strings.HasSuffix(name, "-egress-proxy") {
			want["Available"], want["Degraded"] = "Unknown IssuerUnreachable", "True IssuerUnreachable"
		}
	}
	if diff := cmp.Diff(want, conditionsOf(auth)); diff != "" {
		return fmt.Errorf("conditions (-want +got):\n%s", diff)
	}
	return nil
}

// conditionsOf returns the status and the reason of each condition of a resource, by type.
func conditionsOf(resource armresources.GenericResource) map[string]string {
	all := map[string]string{}
	conditions, _ := property(resource, "status", "conditions").([]any)
	for _, entry := range conditions {
		c := entry.(map[string]any)
		all[c["type"].(string)] = fmt.Sprint(c["status"], " ", c["reason"])
	}
	return all
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
		must.Do(t, c.Act(ctx, id, "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, &issued))
		if strings.Contains(issued.Kubeconfig, "client-key") {
			t.Error("the response contains a private key")
		}
		if validity := time.Until(issued.ExpirationTimestamp); validity <= 0 || validity > 25*time.Hour {
			t.Errorf("the credential is valid for %s", validity)
		}
		kubeconfig := must.Get(credential.WithKey([]byte(issued.Kubeconfig), key))(t)
		config := must.Get(clientcmd.RESTConfigFromKubeConfig(throughProxy(t, kubeconfig)))(t)
		administrator := must.Get(kubernetes.NewForConfig(config))(t)
		awaitRead(t, ctx, "the list of nodes", func() error {
			_, err := administrator.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
				t.Fatalf("using the credential: %v", err)
			}
			return err
		})
		return administrator
	}
	before := request()
	must.Do(t, c.Act(ctx, id, "revokeCredentials", nil, nil))
	awaitRead(t, ctx, "the rejection of the revoked credential", func() error {
		_, err := before.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		switch {
		case err == nil:
			t.Fatal("a revoked credential is accepted")
		case apierrors.IsUnauthorized(err):
			return nil
		}
		return err
	})
	request() // credentials after the revocation work
}
