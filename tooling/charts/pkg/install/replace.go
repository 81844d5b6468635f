package install

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

// statefulSets is the resource with the immutable fields that values can change.
var statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}

// refuseReplacements returns an error if an upgrade would change a field of a StatefulSet of the cluster that the API server does not let an update
// change. The API server would refuse it only after the migration has run and other objects were changed. It compares with the cluster and not
// with the last revision: an operator may have deleted the StatefulSet, which is how such a field changes.
func (i *installation) refuseReplacements(r Release) error {
	objects, err := r.Chart.Render(i.namespace, r.Values)
	if err != nil {
		return err
	}
	cluster, err := i.client.Factory.DynamicClient()
	if err != nil {
		return err
	}
	var refused []error
	for _, object := range objects {
		if object.GetKind() != "StatefulSet" {
			continue
		}
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = i.namespace
		}
		existing, err := cluster.Resource(statefulSets).Namespace(namespace).Get(i.ctx, object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the StatefulSet %s/%s: %w", namespace, object.GetName(), err)
		}
		if changed := chart.ImmutableChanges(existing, object); len(changed) > 0 {
			refused = append(refused, fmt.Errorf("StatefulSet %s/%s: %s: an update cannot change it: keep the value, or replace the StatefulSet (docs/deploy/charts.md#replace-a-statefulset)",
				namespace, object.GetName(), strings.Join(changed, ", ")))
		}
	}
	return errors.Join(refused...)
}
