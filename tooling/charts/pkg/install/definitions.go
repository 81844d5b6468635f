package install

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

// The pauses between reads of the kinds that a cluster serves.
const firstPause, lastPause = 100 * time.Millisecond, 2 * time.Second

// define creates the definitions in the folder crds of a chart that the cluster does not have, and waits until the cluster serves their kinds.
// Helm itself waits only until they are established: the list of kinds, by which it finds the resources of objects, follows later.
func (i *installation) define(c *helmchart.Chart) error {
	ctx, cancel := context.WithTimeout(i.ctx, i.options.ReadyWithin)
	defer cancel()
	for _, definition := range c.CRDObjects() {
		resources, err := i.client.Build(bytes.NewReader(definition.File.Data), false)
		if err != nil {
			return fmt.Errorf("reading the definition %s: %w", definition.Filename, err)
		}
		if _, err := i.client.Create(resources); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the definition %s: %w", definition.Filename, err)
		}
		if err := i.client.wait(resources, i.options.ReadyWithin); err != nil {
			return fmt.Errorf("waiting for the definition %s: %w", definition.Filename, err)
		}
		for _, info := range resources {
			object, ok := info.Object.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("the definition %s is a %T", definition.Filename, info.Object)
			}
			if err := i.awaitKind(ctx, object); err != nil {
				return fmt.Errorf("waiting for the kind of the definition %s: %w", definition.Filename, err)
			}
		}
	}
	return nil
}

// undefined returns the definitions in the folder crds of a chart whose kinds the cluster does not serve.
func (i *installation) undefined(c *helmchart.Chart) ([]*unstructured.Unstructured, error) {
	mapper, err := i.config.RESTClientGetter.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	var undefined []*unstructured.Unstructured
	for _, file := range c.CRDObjects() {
		definitions, err := chart.Parse(string(file.File.Data))
		if err != nil {
			return nil, fmt.Errorf("reading the definition %s: %w", file.Filename, err)
		}
		for _, definition := range definitions {
			_, err := mapper.RESTMapping(kindOf(definition))
			if meta.IsNoMatchError(err) {
				undefined = append(undefined, definition)
			} else if err != nil {
				return nil, fmt.Errorf("reading the kinds of the cluster: %w", err)
			}
		}
	}
	return undefined, nil
}

// kindOf returns the kind that a definition defines.
func kindOf(definition *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// kindsOf returns the kinds that definitions define.
func kindsOf(definitions []*unstructured.Unstructured) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	for _, definition := range definitions {
		kinds[kindOf(definition)] = true
	}
	return kinds
}

// Build returns the resources of a manifest, without the objects whose kinds are undefined: the cluster has no resources for them.
func (c *client) Build(manifest io.Reader, validate bool) (kube.ResourceList, error) {
	if len(c.undefined) == 0 {
		return c.Client.Build(manifest, validate)
	}
	text, err := io.ReadAll(manifest)
	if err != nil {
		return nil, err
	}
	objects, err := chart.Parse(string(text))
	if err != nil {
		return nil, err
	}
	var defined bytes.Buffer
	for _, object := range objects {
		if c.undefined[object.GroupVersionKind().GroupKind()] {
			continue
		}
		encoded, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		defined.WriteString("---\n")
		defined.Write(encoded)
	}
	return c.Client.Build(&defined, validate)
}

// awaitKind waits until the cluster lists the kind of a definition.
func (i *installation) awaitKind(ctx context.Context, definition *unstructured.Unstructured) error {
	for pauses := backoff.New(firstPause, lastPause); ; {
		mapper, err := i.config.RESTClientGetter.ToRESTMapper()
		if err != nil {
			return err
		}
		if _, err = mapper.RESTMapping(kindOf(definition)); !meta.IsNoMatchError(err) {
			return err
		}
		if waited := pauses.Wait(ctx); waited != nil {
			return fmt.Errorf("%w: %w", waited, err)
		}
		meta.MaybeResetRESTMapper(mapper)
	}
}
