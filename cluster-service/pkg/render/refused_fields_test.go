package render_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestAgentWritesOnlyRenderedFields adds to each object of all renderings each field of its kind, and changes each value, as Maestro's agent:
// in a new object and in a stored one. The API server must refuse what is not on the list of the agent's policy. The definitions of HyperShift's
// kinds have no schema here, so that nothing but the policy can refuse.
func TestAgentWritesOnlyRenderedFields(t *testing.T) {
	nightly.Only(t)
	cluster := kubeapitest.Start(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig()))(t)
	schemas := map[string]*apiextensionsv1.JSONSchemaProps{}
	for kind, file := range map[string]string{"HostedCluster": "hostedclusters-Hypershift-CustomNoUpgrade", "NodePool": "nodepools-CustomNoUpgrade"} {
		schemas[kind] = publishedSchema(t, file)
	}
	custom := []string{"HostedCluster", "NodePool", "CertificateSigningRequestApproval", "CertificateRevocationRequest", "SecretProviderClass", "SecretSync"}
	must.Get(envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: withoutSchema(custom...)}))(t)
	operator, agent := dynamicClient(t, cluster.Kubeconfig()), dynamicClient(t, cluster.AgentKubeconfig(t))
	m := &mutator{t: t, agent: agent, listed: renderedList(t), tried: map[string]bool{}}
	for name, settle := range allVariants(t) {
		r, aggregate := settle()
		createNamespace(t, operator, fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster))
		for _, found := range renderings(t, r, aggregate) {
			if _, err := applyTo(t, agent, found, metav1.PatchOptions{}); err != nil {
				t.Fatalf("%s: %s: %v", name, found.resource, err)
			}
			kind := found.object["kind"].(string)
			m.rendering, m.typed = found, !slices.Contains(custom, kind)
			m.object("", nil, found.object, m.listed[found.resource].(map[string]any), schemas[kind])
		}
	}
	for _, c := range builtIn {
		for _, found := range m.stored {
			if found.object["kind"] == c.kind {
				m.rendering = found
				m.expect(c.field, c.value, true)
				break
			}
		}
	}
	t.Logf("%d fields, of which %d are permitted", len(m.tried), m.permitted)
}

// builtIn are fields of Kubernetes' own kinds, whose schemas the API server enforces.
var builtIn = []struct {
	kind  string
	field []string
	value any
}{
	{"Secret", []string{"immutable"}, true},
	{"ConfigMap", []string{"immutable"}, true},
	{"ConfigMap", []string{"binaryData"}, map[string]any{"x": "eA=="}},
	{"Secret", []string{"stringData"}, map[string]any{"x": "x"}},
}

// publishedSchema returns the schema of a published definition.
func publishedSchema(t *testing.T, name string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../.build/third-party/crds/hypershift/hypershift-operator/zz_generated.crd-manifests", name+".crd.yaml"))
	if os.IsNotExist(err) {
		kubeapitest.SkipUnlessCI(t, "HyperShift's CustomResourceDefinitions are not built; run tooling/third-party/build.sh")
	}
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	must.Do(t, yaml.Unmarshal(text, &definition))
	for _, version := range definition.Spec.Versions {
		if version.Name == "v1beta1" {
			return version.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("%s has no version v1beta1", name)
	return nil
}

// renderedList returns the list of the agent's policy.
func renderedList(t *testing.T) map[string]any {
	t.Helper()
	text := must.Get(os.ReadFile(renderedFile))(t)
	var list map[string]any
	must.Do(t, yaml.Unmarshal(text, &list))
	return list
}

// mutator changes one field of a rendering at a time.
type mutator struct {
	t      *testing.T
	agent  dynamic.Interface
	listed map[string]any
	// tried are the fields of all resources that were tried.
	tried     map[string]bool
	permitted int
	stored    []rendering
	rendering
	// typed reports that the API server has a schema of the object.
	typed bool
}

// object tries all fields of an object. schema is nil if it is unknown.
func (m *mutator) object(name string, path []string, object, listed map[string]any, schema *apiextensionsv1.JSONSchemaProps) {
	if len(path) == 0 {
		m.stored = append(m.stored, m.rendering)
	}
	names := map[string]bool{}
	isMap := slices.Contains([]string{"data", "labels", "annotations", "parameters"}, last(path))
	switch {
	case name == "metadata.":
		names["finalizers"] = true // the API server refuses others itself
	case !m.typed || isMap:
		names["other"] = true
	}
	if schema != nil {
		for key := range schema.Properties {
			names[key] = true
		}
	}
	if name == "metadata.annotations." {
		for _, key := range []string{"image-overrides", "control-plane-operator-image", "capi-provider-azure-image", "cluster-api-manager-image", "force-upgrade-to", "pod-security-admission-label-override"} {
			names["hypershift.openshift.io/"+key] = true
		}
	}
	for key := range listed {
		names[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace"}, name+key) {
			continue // they identify another object
		}
		field, next := name+key, append(slices.Clone(path), key)
		value, exists := object[key]
		below, isObject := listed[key].(map[string]any)
		var property *apiextensionsv1.JSONSchemaProps
		if schema != nil {
			if p, ok := schema.Properties[key]; ok {
				property = &p
			}
		}
		if isObject && exists {
			m.below(field, next, value, below, property)
			continue
		}
		if m.tried[m.resource+" "+field] {
			continue
		}
		text, _ := listed[key].(string)
		free := listed[anyKey] != nil
		switch {
		case isObject: // another variant has it
		case m.typed && !isMap && key != "finalizers":
		default:
			m.tried[m.resource+" "+field] = true
			to := changed(value)
			switch key {
			case "finalizers":
				to = []any{"a/b"}
			case corev1.DockerConfigJsonKey:
				to = "e30=" // the API server validates the content
			}
			m.expect(next, to, text != anyValue && !free)
		}
	}
}

// below tries the fields of a value of an object.
func (m *mutator) below(name string, path []string, value any, listed map[string]any, schema *apiextensionsv1.JSONSchemaProps) {
	items, isList := listed[listItems].(map[string]any)
	switch value := value.(type) {
	case map[string]any:
		m.object(name+".", path, value, listed, schema)
	case []any:
		if isList && len(value) > 0 {
			var property *apiextensionsv1.JSONSchemaProps
			if schema != nil && schema.Items != nil {
				property = schema.Items.Schema
			}
			item, _ := value[0].(map[string]any)
			m.object(name+"[].", append(slices.Clone(path), "0"), item, items, property)
		}
	}
}

func last(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return path[len(path)-1]
}

// changed returns another value of the same type. Strings can be the content of a Secret.
func changed(value any) any {
	switch value := value.(type) {
	case bool:
		return !value
	case int64:
		return value + 1
	case float64:
		return value + 1
	case []any:
		return append(slices.Clone(value), "other")
	}
	return "b3RoZXIx"
}

// expect applies the rendering with a changed field, as a new object and as the stored one.
func (m *mutator) expect(path []string, value any, refused bool) {
	m.t.Helper()
	if !refused {
		m.permitted++
	}
	for _, isNew := range []bool{true, false} {
		object := runtime.DeepCopyJSON(m.rendering.object)
		set(m.t, object, path, value)
		if isNew {
			// A namespace that the agent creates must be one of a cluster.
			set(m.t, object, []string{"metadata", "name"}, (&unstructured.Unstructured{Object: object}).GetName()+"-new")
		}
		_, err := applyTo(m.t, m.agent, rendering{m.resource, object}, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		what := fmt.Sprintf("%s: %s=%v, new: %t", m.resource, strings.Join(path, "."), value, isNew)
		switch {
		case refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'maestro-agent'")):
			m.t.Errorf("%s: %v, want a refusal by the policy", what, err)
		case !refused && err != nil:
			m.t.Errorf("%s: %v", what, err)
		}
	}
}

// set sets the value at a path. The indexes of lists are decimal numbers.
func set(t *testing.T, value any, path []string, to any) {
	t.Helper()
	for i, key := range path {
		switch parent := value.(type) {
		case []any:
			value = parent[0]
		case map[string]any:
			if i == len(path)-1 {
				parent[key] = to
				return
			}
			if parent[key] == nil {
				parent[key] = map[string]any{}
			}
			value = parent[key]
		default:
			t.Fatalf("%v: %T has no fields", path, value)
		}
	}
}
