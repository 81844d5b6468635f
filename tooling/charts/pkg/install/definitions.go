package install

import (
	"bytes"
	"context"
	"fmt"
	"time"

	helmchart "helm.sh/helm/v3/pkg/chart"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// The pauses between reads of the kinds that a cluster serves.
const firstPause, lastPause = 100 * time.Millisecond, 2 * time.Second

// define creates the definitions in the folder crds of a chart that the cluster does not have, and waits until the cluster serves their kinds.
// Helm itself waits only until they are established: the list of kinds, by which it finds the resources of objects, follows later.
func (i *installation) define(chart *helmchart.Chart) error {
	ctx, cancel := context.WithTimeout(i.ctx, i.options.ReadyWithin)
	defer cancel()
	for _, definition := range chart.CRDObjects() {
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

// awaitKind waits until the cluster lists the kind of a definition.
func (i *installation) awaitKind(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	for pauses := backoff.New(firstPause, lastPause); ; {
		mapper, err := i.config.RESTClientGetter.ToRESTMapper()
		if err != nil {
			return err
		}
		if _, err = mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}); !meta.IsNoMatchError(err) {
			return err
		}
		if waited := pauses.Wait(ctx); waited != nil {
			return fmt.Errorf("%w: %w", waited, err)
		}
		meta.MaybeResetRESTMapper(mapper)
	}
}
