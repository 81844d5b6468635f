package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// fieldManager is the manager of the fields of the objects that Apply writes.
const fieldManager = "hcpmesh-kubernetes"

// Apply applies the objects of a YAML stream in their order, as kubectl apply --server-side does. An unknown field is an error.
func (c *Cluster) Apply(ctx context.Context, manifests io.Reader) error {
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	objects, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(manifests, 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading manifests: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		data, err := json.Marshal(object.Object)
		if err != nil {
			return err
		}
		force := true
		_, err = objects.Resource(mapping.Resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
}
