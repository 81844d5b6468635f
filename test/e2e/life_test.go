package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestLifeOfACluster is the main job, done by the published client, unmodified.
func TestLifeOfACluster(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := patience(t, 10*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000001", "life")
	atOnce.enter()
	defer func() { atOnce.leave(t, c) }()
	id, pool := c.ClusterID("lively"), c.NodePoolID("lively", "workers")

	created, err := c.Put(ctx, id, c.ClusterBody("lively"))
	if err != nil {
		t.Fatal(err)
	}
	if state := property(created, "provisioningState"); state != "Succeeded" {
		t.Errorf("provisioningState %v", state)
	}
	if url, _ := property(created, "api", "url").(string); url == "" {
		t.Error("a cluster that Succeeded has no api.url")
	}
	if _, err := c.Put(ctx, pool, c.NodePoolBody(2)); err != nil {
		t.Fatal(err)
	}
	hosted := hostedCluster(t, ctx, id)
	awaitReadyNodes(t, ctx, hosted, 2)

	t.Run("issuer", func(t *testing.T) {
		issuer, _ := property(created, "platform", "issuerUrl").(string)
		verifyByDocuments(t, ctx, hosted, issuer)
	})
	t.Run("lists", func(t *testing.T) {
		for scope, collection := range map[string]string{
			"subscription":   "/subscriptions/" + c.Subscription + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters",
			"resource group": c.GroupID() + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters",
			"cluster":        id + "/nodePools",
		} {
			names, err := c.List(ctx, collection)
			if err != nil {
				t.Errorf("listing by %s: %v", scope, err)
			}
			want := "lively"
			if scope == "cluster" {
				want = "workers"
			}
			if !slices.Equal(names, []string{want}) {
				t.Errorf("listing by %s gave %v", scope, names)
			}
		}
	})

	t.Run("tags", func(t *testing.T) {
		if _, err := c.Patch(ctx, id, armresources.GenericResource{Tags: map[string]*string{"made-by": to.Ptr("e2e"), "mood": to.Ptr("good")}}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Tags["mood"] == nil || *got.Tags["mood"] != "good" {
			t.Errorf("tags %v", got.Tags)
		}
	})

	t.Run("scale", func(t *testing.T) {
		for _, replicas := range []int{3, 1} {
			if _, err := c.Patch(ctx, pool, armresources.GenericResource{Properties: map[string]any{"replicas": replicas}}); err != nil {
				t.Fatal(err)
			}
			awaitReadyNodes(t, ctx, hosted, replicas)
		}
	})

	t.Run("external authentication", func(t *testing.T) { authenticateElsewhere(t, ctx, c, "lively") })
	t.Run("credentials", func(t *testing.T) { useCredential(t, ctx, c, id) })

	if err := c.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		t.Errorf("after the delete a GET gives %v", err)
	}
}

// hostedCluster connects to a cluster's own API server, as its administrator.
func hostedCluster(t *testing.T, ctx context.Context, id string) *kubernetes.Clientset {
	t.Helper()
	kubeconfig, err := management.Kubeconfig(ctx, region.Endpoints().Kubeconfigs, id)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// awaitReadyNodes waits until a cluster has exactly so many nodes and all are Ready.
func awaitReadyNodes(t *testing.T, ctx context.Context, hosted *kubernetes.Clientset, want int) {
	t.Helper()
	eventually.Before(ctx, t, fmt.Sprintf("%d nodes are ready", want), func() error {
		nodes, err := hosted.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != want || len(nodes.Items) != want {
			return fmt.Errorf("of %d nodes %d are ready", len(nodes.Items), ready)
		}
		return nil
	})
}

// property reads a value below properties by its path; nil when it is absent.
func property(resource armresources.GenericResource, path ...string) any {
	var value any = resource.Properties
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}
