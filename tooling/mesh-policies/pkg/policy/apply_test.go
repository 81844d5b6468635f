package policy_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/policy"
)

// istioAPIServer starts a real API server with Istio's published CustomResourceDefinitions.
func istioAPIServer(t *testing.T) dynamic.Interface {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatalf("find the module istio.io/api: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(strings.TrimSpace(string(dir)), "kubernetes", "customresourcedefinitions.gen.yaml")
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestRealAPIServerAcceptsPolicies applies the printed policies to a real API server, which rejects unknown fields and values.
func TestRealAPIServerAcceptsPolicies(t *testing.T) {
	client := istioAPIServer(t)
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	for _, workload := range options().Workloads {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": string(workload)}}}
		if _, err := namespaces.Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := policy.YAML(render(t))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "---\n") {
		if err := apply(t, client, []byte(document)); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
	}
}

// TestRealAPIServerRefusesWrongPolicies shows that the test above can fail.
func TestRealAPIServerRefusesWrongPolicies(t *testing.T) {
	client := istioAPIServer(t)
	o := options()
	o.Workloads = []mesh.Peer{mesh.ClusterService}
	objects, err := policy.Render(mesh.Rules(), o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := policy.YAML(objects[len(objects)-1:]) // the calls
	if err != nil {
		t.Fatal(err)
	}
	correct := strings.ReplaceAll(string(text), "namespace: cluster-service", "namespace: default")
	if err := apply(t, client, []byte(correct)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"principals:", "principal:"}, {"spec:", "spec:\n  action: ALOW"}} {
		if err := apply(t, client, []byte(strings.ReplaceAll(correct, change[0], change[1]))); err == nil {
			t.Errorf("the API server accepts %q instead of %q", change[1], change[0])
		}
	}
}

func apply(t *testing.T, client dynamic.Interface, document []byte) error {
	t.Helper()
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		t.Fatal(err)
	}
	encoded, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: map[string]string{
		"AuthorizationPolicy": "authorizationpolicies", "PeerAuthentication": "peerauthentications"}[object.GetKind()]}
	force := true
	_, err = client.Resource(resource).Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(), types.ApplyPatchType, encoded,
		metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict})
	return err
}
