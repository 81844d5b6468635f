package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestClusterLifecycle creates, uses, changes and deletes a cluster with the unmodified published client.
func TestClusterLifecycle(t *testing.T) {
	needsAnyRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 10*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000001", "lifecycle")
	parallel.enter()
	defer func() { parallel.leave(t, c) }()
	id, pool := c.ClusterID("lifecycle"), c.NodePoolID("lifecycle", "workers")

	created := must.Get(c.Put(ctx, id, c.ClusterBody("lifecycle")))(t)
	if state := property(created, "provisioningState"); state != "Succeeded" {
		t.Errorf("provisioningState %v", state)
	}
	if url, _ := property(created, "api", "url").(string); url == "" {
		t.Error("a cluster in state Succeeded has no api.url")
	}
	must.Get(c.Put(ctx, pool, c.NodePoolBody(2)))(t)
	hosted := hostedCluster(t, ctx, id)
	awaitReadyNodes(t, ctx, hosted, 2)

	t.Run("trace", func(t *testing.T) {
		requireTrace(t, ctx, id, "HostedCluster", feedback.InfrastructureReady, feedback.EtcdAvailable, feedback.APIServerAvailable, feedback.Available)
		requireTrace(t, ctx, pool, "NodePool", feedback.AllMachines, feedback.Ready)
	})
	t.Run("issuer", func(t *testing.T) {
		needsRegion(t)
		issuer, _ := property(created, "platform", "issuerUrl").(string)
		verifyWithPublishedKeys(t, ctx, hosted, issuer)
	})
	t.Run("identity credentials", func(t *testing.T) {
		needsRegion(t)
		// The vault has each secret that the HostedCluster names, and that of the operator for the customer's key, which this cluster does not use.
		mgmt := hosting(t, ctx, id)
		named := regexp.MustCompile(`"credentialsSecretName":"([a-z]+-[a-z0-9]+)"`).FindAllStringSubmatch(mgmt.get(ctx, "hostedclusters", "{.items[0].spec.platform}"), -1)
		_, clusterID, _ := strings.Cut(named[0][1], "-")
		want := []string{"secrets/kms-" + clusterID}
		for _, name := range named {
			want = append(want, "secrets/"+name[1])
		}
		stored := slices.DeleteFunc(must.Get(inAzure(ctx))(t), func(resource string) bool {
			return !strings.HasPrefix(resource, "secrets/") || !strings.HasSuffix(resource, clusterID)
		})
		slices.Sort(want)
		slices.Sort(stored)
		if !slices.Equal(stored, want) {
			t.Errorf("credentials %v, want %v", stored, want)
		}
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
			want := "lifecycle"
			if scope == "cluster" {
				want = "workers"
			}
			if !slices.Equal(names, []string{want}) {
				t.Errorf("listing by %s returned %v", scope, names)
			}
		}
	})

	t.Run("tags", func(t *testing.T) {
		// A PATCH merges tags: those that it does not have stay, and null removes one.
		for _, step := range []struct {
			patch map[string]*string
			want  map[string]string
		}{
			{map[string]*string{"team": to.Ptr("blue")}, map[string]string{"made-by": "e2e", "team": "blue"}},
			{map[string]*string{"team": nil}, map[string]string{"made-by": "e2e"}},
		} {
			must.Get(c.Patch(ctx, id, armresources.GenericResource{Tags: step.patch}))(t)
			got := must.Get(c.Resources.GetByID(ctx, id, customer.APIVersion, nil))(t)
			tags := map[string]string{}
			for name, value := range got.Tags {
				tags[name] = *value
			}
			if !maps.Equal(tags, step.want) {
				t.Errorf("tags %v, want %v", tags, step.want)
			}
		}
	})

	t.Run("scale", func(t *testing.T) {
		for _, replicas := range []int{3, 1} {
			must.Get(c.Patch(ctx, pool, armresources.GenericResource{Properties: map[string]any{"replicas": replicas}}))(t)
			awaitReadyNodes(t, ctx, hosted, replicas)
		}
	})

	t.Run("external authentication", func(t *testing.T) { testExternalAuth(t, ctx, c, "lifecycle") })
	t.Run("credentials", func(t *testing.T) { testAdminCredential(t, ctx, c, id) })

	uid := ""
	if region != nil {
		t.Run("documented log records", requireDocumentedRecords)
		uid = uidOf(t, ctx, clusterService(t), id)
		t.Run("monitor", func(t *testing.T) { awaitMonitored(t, ctx, uid) })
	}

	must.Do(t, c.Delete(ctx, id))
	if _, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		t.Errorf("GET after the deletion returned %v", err)
	}
	if region != nil {
		awaitNotMonitored(t, ctx, uid)
	}
}

// hostedCluster returns a client of a hosted API server with the administrator's kubeconfig.
func hostedCluster(t *testing.T, ctx context.Context, id string) *kubernetes.Clientset {
	t.Helper()
	config := must.Get(clientcmd.RESTConfigFromKubeConfig(kubeconfigOf(t, ctx, id)))(t)
	return must.Get(kubernetes.NewForConfig(config))(t)
}

// awaitReadyNodes waits until a cluster has exactly want nodes and all are Ready.
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
			return fmt.Errorf("%d nodes, %d of them ready", len(nodes.Items), ready)
		}
		return nil
	})
}

// property returns the value at a path below properties, or nil if it is absent.
func property(resource armresources.GenericResource, path ...string) any {
	var value any = resource.Properties
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}
