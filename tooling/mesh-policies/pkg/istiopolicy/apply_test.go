package istiopolicy_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiodtest"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiopolicy"
)

// istioAPIServer starts a real API server with Istio's published CustomResourceDefinitions.
func istioAPIServer(t *testing.T) (*kubeapitest.Cluster, dynamic.Interface) {
	t.Helper()
	cluster := kubeapitest.Start(t)
	client := must.Get(dynamic.NewForConfig(istiodtest.InstallDefinitions(t, cluster)))(t)
	return cluster, client
}

// create creates an object of Kubernetes.
func create(t *testing.T, client dynamic.Interface, text string, arguments ...any) *unstructured.Unstructured {
	t.Helper()
	var object unstructured.Unstructured
	must.Do(t, yaml.Unmarshal(fmt.Appendf(nil, text, arguments...), &object.Object))
	plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return must.Get(client.Resource(plural).Namespace(object.GetNamespace()).Create(t.Context(), &object, metav1.CreateOptions{}))(t)
}

func createNamespace(t *testing.T, client dynamic.Interface, name string) {
	t.Helper()
	create(t, client, "{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name)
}

// applyPolicies applies the policies of the table.
func applyPolicies(t *testing.T, client dynamic.Interface, objects []runtime.Object) {
	t.Helper()
	text := must.Get(istiopolicy.YAML(objects))(t)
	for document := range strings.SplitSeq(string(text), "---\n") {
		if err := apply(t, client, []byte(document)); err != nil {
			t.Errorf("%v:\n%s", err, document)
		}
	}
}

// TestRealAPIServerAcceptsPolicies applies the printed policies to a real API server, which rejects unknown fields and values.
func TestRealAPIServerAcceptsPolicies(t *testing.T) {
	nightly.Only(t)
	_, client := istioAPIServer(t)
	for _, workload := range options().Workloads {
		createNamespace(t, client, string(workload))
	}
	applyPolicies(t, client, render(t))
}

// TestRealAPIServerRefusesWrongPolicies shows that the test above can fail.
func TestRealAPIServerRefusesWrongPolicies(t *testing.T) {
	nightly.Only(t)
	_, client := istioAPIServer(t)
	o := options()
	o.Workloads = []mesh.Peer{mesh.ClusterService}
	objects := must.Get(istiopolicy.Render(mesh.Rules(), o))(t)
	text, err := istiopolicy.YAML(objects[len(objects)-1:]) // the calls
	if err != nil {
		t.Fatal(err)
	}
	correct := strings.ReplaceAll(string(text), "namespace: cluster-service", "namespace: default")
	must.Do(t, apply(t, client, []byte(correct)))
	for _, change := range [][2]string{{"principals:", "principal:"}, {"spec:", "spec:\n  action: ALOW"}} {
		if err := apply(t, client, []byte(strings.ReplaceAll(correct, change[0], change[1]))); err == nil {
			t.Errorf("the API server accepts %q instead of %q", change[1], change[0])
		}
	}
}

func apply(t *testing.T, client dynamic.Interface, document []byte) error {
	t.Helper()
	var object unstructured.Unstructured
	must.Do(t, yaml.Unmarshal(document, &object.Object))
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
