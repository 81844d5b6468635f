package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// resolverTests is the number of runs of TestResolverWithRightsOfAgent, each of which has clusters of its own.
var resolverTests atomic.Int32

// TestResolverWithRightsOfAgent resolves the IDs of clusters with a real API server, and with no more rights than the agent has.
func TestResolverWithRightsOfAgent(t *testing.T) {
	cluster, suffix := shared.Cluster(t), fmt.Sprint(resolverTests.Add(1))
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	administrator, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := definition.UnmarshalJSON([]byte(kubeapitest.HostedClusters)); err != nil {
		t.Fatal(err)
	}
	definitions := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	create := func(id, name string, service *corev1.ServiceSpec) {
		t.Helper()
		id, name = id+suffix, name+suffix
		hosted := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster",
			"metadata": map[string]any{"name": name, "labels": map[string]any{managementcluster.LabelClusterID: id}}, "spec": map[string]any{"release": map[string]any{"image": "r"}}}}
		resource := objects.Resource(schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}).Namespace("default")
		eventually.Soon(t, "the HostedCluster exists", func() error {
			_, err := resource.Create(t.Context(), hosted, metav1.CreateOptions{})
			return err
		})

		namespace := managementcluster.ControlPlaneNamespace("default", name)
		if _, err := administrator.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if service == nil {
			return
		}
		if _, err := administrator.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: managementcluster.APIServerService}, Spec: *service}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ports := []corev1.ServicePort{{Port: 6443}}
	create("1a", "with.ip", &corev1.ServiceSpec{Ports: ports})
	create("2b", "with-name", &corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1", Ports: ports})
	create("3c", "headless", &corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: ports})
	create("4d", "new", nil)
	service, err := administrator.CoreV1().Services("default-with-ip"+suffix).Get(t.Context(), managementcluster.APIServerService, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	limited, err := clientcmd.BuildConfigFromFlags("", cluster.TunnelKubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := agent.NewResolver(limited)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ id, address, err string }{
		{"1a" + suffix, service.Spec.ClusterIP + ":6443", ""},
		{"2b" + suffix, "127.0.0.1:6443", ""},
		{"3c" + suffix, "", "has no address"},
		{"4d" + suffix, "", "not found"},
		{"5e", "", agent.ErrUnknownCluster.Error()},
		{"", "", agent.ErrUnknownCluster.Error()},
		{"1a" + suffix + ",x=y", "", agent.ErrUnknownCluster.Error()},
		{"kube-apiserver.default-with-ip" + suffix + ".svc:6443", "", agent.ErrUnknownCluster.Error()},
	} {
		address, err := resolver.Address(t.Context(), test.id)
		if address != test.address || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %q, %v, want %q, %q", test.id, address, err, test.address, test.err)
		}
		if unknown := test.err == agent.ErrUnknownCluster.Error(); unknown != errors.Is(err, agent.ErrUnknownCluster) {
			t.Errorf("%q: %v, unknown: %t", test.id, err, unknown)
		}
	}
}
