package render_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/yaml"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// renderedFile lists the fields of all renderings. The admission policy of Maestro's agent permits no others.
const renderedFile = "../../../internal/managementaccess/rendered.yaml"

const renderedHeader = `# The fields that Cluster Service renders, by resource. The admission policy permits Maestro's agent no others.
# go test ./cluster-service/pkg/render -run TestRenderedFieldsAreCurrent -update writes the file.
#
# any: any value. only VALUE: only the value that the API server sets by default. release image, operator image: an image of the region by its
# digest. "[]" are the items of a list, and "*" all keys of a map whose keys customers choose.
`

// The words of the file for values.
const (
	anyValue      = "any"
	onlyValue     = "only "
	releaseImage  = "release image"
	operatorImage = "operator image"
	listItems     = "[]"
	anyKey        = "*"
)

// rendering is an applied object with its resource in the format RESOURCE.GROUP.
type rendering struct {
	resource string
	object   map[string]any
}

// renderings returns the objects that a renderer applies for an aggregate, as the agent of the shard applies them.
func renderings(t *testing.T, r *render.Renderer, aggregate *fleet.ClusterAggregate) []rendering {
	t.Helper()
	var all []rendering
	for _, w := range aggregate.Works {
		bundle := must.Get(r.Bundle(aggregate, w))(t)
		for i, manifest := range bundle.Manifests {
			if bundle.Configs[i].UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly {
				continue
			}
			found := rendering{resource: bundle.Configs[i].ResourceIdentifier.Resource + "." + bundle.Configs[i].ResourceIdentifier.Group}
			must.Do(t, json.Unmarshal(opened(t, manifest), &found.object))
			all = append(all, found)
		}
	}
	return all
}

// allVariants returns the aggregates that together cause every rendered field, and their renderers. Each is another cluster.
func allVariants(t *testing.T) map[string]func() (*render.Renderer, *fleet.ClusterAggregate) {
	t.Helper()
	all := map[string]func() (*render.Renderer, *fleet.ClusterAggregate){}
	add := func(name string, r *render.Renderer, change func(*fleet.ClusterAggregate)) {
		all[name] = func() (*render.Renderer, *fleet.ClusterAggregate) {
			return r, settled(t, r, func(aggregate *fleet.ClusterAggregate) {
				change(aggregate)
				aggregate.Cluster.Status.ClusterId = fleet.ClusterID(name)
			})
		}
	}
	for name, change := range variants {
		add(name, renderer(), change)
		add("configured "+name, configured(), change)
	}
	add("maintenance", configured(), maintenance)
	// The largest lists must not exceed the cost that an admission policy may have.
	add("large", configured(), func(aggregate *fleet.ClusterAggregate) {
		maintenance(aggregate)
		spec := aggregate.Cluster.Spec
		for i := range 200 {
			spec.ImageDigestMirrors = append(spec.ImageDigestMirrors, &csv1.ImageDigestMirror{Source: fmt.Sprintf("registry.example.com/team-%d", i),
				Mirrors: []string{"mirror.example.com/team", "mirror2.example.com/team"}})
			spec.Api.AuthorizedCidrs = append(spec.Api.AuthorizedCidrs, fmt.Sprintf("192.0.%d.0/24", i))
		}
	})
	return all
}

// renderedFields returns the fields of all renderings in the format of the file.
func renderedFields(t *testing.T) map[string]any {
	t.Helper()
	fields := map[string]any{}
	for _, settle := range allVariants(t) {
		r, aggregate := settle()
		for _, found := range renderings(t, r, aggregate) {
			fields[found.resource] = addFields(t, found.resource, fields[found.resource], found.object)
		}
	}
	// Customers choose the labels of nodes.
	spec := fields["nodepools.hypershift.openshift.io"].(map[string]any)["spec"].(map[string]any)
	spec["nodeLabels"] = map[string]any{anyKey: anyValue}
	return fields
}

// addFields adds the fields of a value to known, and returns them.
func addFields(t *testing.T, path string, known, value any) any {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		fields, _ := known.(map[string]any)
		if fields == nil {
			fields = map[string]any{}
		}
		for key, field := range value {
			fields[key] = addFields(t, path+"."+key, fields[key], field)
		}
		return fields
	case []any:
		if len(value) == 0 && known == nil {
			t.Errorf("%s: no variant has an item", path)
		}
		fields, _ := known.(map[string]any)
		if fields == nil {
			fields = map[string]any{}
		}
		for _, item := range value {
			fields[listItems] = addFields(t, path+listItems, fields[listItems], item)
		}
		return fields
	case string:
		switch {
		case strings.HasPrefix(value, releaseFrom):
			return releaseImage
		case strings.Contains(value, "@sha256:"):
			return operatorImage
		}
	}
	if known != nil && known != anyValue {
		t.Errorf("%s is both %v and a value", path, known)
	}
	return anyValue
}

// TestRenderedFieldsAreCurrent compares the list of the admission policy with what is rendered, and with what an API server adds to it.
func TestRenderedFieldsAreCurrent(t *testing.T) {
	fields := renderedFields(t)
	client, _ := managementCluster(t)
	for _, settle := range allVariants(t) {
		r, aggregate := settle()
		createNamespace(t, client, fleet.Namespace(r.Environment, aggregate.Cluster.ID()))
		createNamespace(t, client, fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster))
		for _, found := range renderings(t, r, aggregate) {
			if !strings.HasSuffix(found.resource, ".hypershift.openshift.io") || found.object["spec"] == nil {
				continue // Kubernetes sets no defaults in the spec of other rendered objects
			}
			stored, err := applyTo(t, client, found, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatalf("%s: %v", found.resource, err)
			}
			addDefaults(t, found.resource, fields[found.resource].(map[string]any)["spec"].(map[string]any), stored.Object["spec"].(map[string]any))
		}
	}
	encoded := must.Get(yaml.Marshal(fields))(t)
	want := renderedHeader + string(encoded)
	if *update {
		must.Do(t, os.WriteFile(renderedFile, []byte(want), 0o644))
	}
	have := must.Get(os.ReadFile(renderedFile))(t)
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is out of date: run the test with -update (-want +have):\n%s", renderedFile, diff)
	}
}

// addDefaults adds the fields of an object that are not rendered, with the values that the API server gave them.
func addDefaults(t *testing.T, path string, known, stored map[string]any) {
	t.Helper()
	if known[anyKey] != nil {
		return
	}
	for key, value := range stored {
		path := path + "." + key
		below, isObject := known[key].(map[string]any)
		switch value := value.(type) {
		case map[string]any:
			if known[key] == nil {
				below, isObject = map[string]any{}, true
				known[key] = below
			}
			if isObject {
				addDefaults(t, path, below, value)
			}
		case []any:
			if known[key] == nil {
				t.Errorf("%s: a list by default", path)
			}
			items, _ := below[listItems].(map[string]any)
			for _, item := range value {
				if item, ok := item.(map[string]any); ok && items != nil {
					addDefaults(t, path+listItems, items, item)
				}
			}
		default:
			text := must.Get(json.Marshal(value))(t)
			only := onlyValue + string(text)
			if known[key] == nil {
				known[key] = only
			}
			if text, _ := known[key].(string); strings.HasPrefix(text, onlyValue) && text != only {
				t.Errorf("%s: the default is %s and %s", path, text, only)
			}
		}
	}
}

func createNamespace(t *testing.T, client dynamic.Interface, name string) {
	t.Helper()
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	namespace.SetName(name)
	must.Get(client.Resource(resources["Namespace"]).Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
}

// applyTo applies a rendering as the work agent does. The server rejects unknown fields.
func applyTo(t *testing.T, client dynamic.Interface, found rendering, options metav1.PatchOptions) (*unstructured.Unstructured, error) {
	t.Helper()
	object := &unstructured.Unstructured{Object: found.object}
	text := must.Get(object.MarshalJSON())(t)
	options.FieldManager, options.Force, options.FieldValidation = workv1.DefaultFieldManager, new(true), metav1.FieldValidationStrict
	return client.Resource(resources[object.GetKind()]).Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(), types.ApplyPatchType, text, options)
}

// TestVariantsSetAllFields checks that each field of the specifications that are rendered is set in a variant, because the list of rendered
// fields has no others.
func TestVariantsSetAllFields(t *testing.T) {
	set, declared := map[string]bool{}, map[string]bool{}
	for _, settle := range allVariants(t) {
		_, aggregate := settle()
		messages := []proto.Message{aggregate.Cluster.Spec, aggregate.Cluster.Overrides}
		for _, p := range aggregate.Pools {
			messages = append(messages, p.Spec)
		}
		for _, a := range aggregate.ExternalAuths {
			messages = append(messages, a.Spec)
		}
		for _, c := range aggregate.Credentials {
			messages = append(messages, c.Spec)
		}
		for _, m := range messages {
			collect(m.ProtoReflect(), set)
			declare(m.ProtoReflect().Descriptor(), declared)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !set[name] {
			t.Errorf("no variant sets %s", name)
		}
	}
}

// collect adds the names of the fields that are set in a message and in those below it.
func collect(m protoreflect.Message, set map[string]bool) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		set[string(field.FullName())] = true
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { collect(v.Message(), set); return true })
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				collect(value.List().Get(i).Message(), set)
			}
		case field.Message() != nil && !field.IsMap() && !field.IsList():
			collect(value.Message(), set)
		}
		return true
	})
}

// declare adds the names of all fields of a type and of those below it, apart from the well-known types.
func declare(d protoreflect.MessageDescriptor, names map[string]bool) {
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		if names[string(field.FullName())] {
			continue
		}
		names[string(field.FullName())] = true
		next := field.Message()
		if field.IsMap() {
			next = field.MapValue().Message()
		}
		if next != nil && !strings.HasPrefix(string(next.FullName()), "google.protobuf.") {
			declare(next, names)
		}
	}
}
