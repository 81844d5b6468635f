package conformance

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestObjectIsAppliedWithItsOwner: the first version of an object has its owner reference, so that no second write of the agent can
// conflict with the object's controller.
func TestObjectIsAppliedWithItsOwner(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b := newBundle(consumer, "one")
	events := must.Get(r.dynamic().Resource(configMaps).Namespace("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + b.configMapName()}))(t)
	defer events.Stop()
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	event := <-events.ResultChan()
	if created, ok := event.Object.(*unstructured.Unstructured); !ok || event.Type != watch.Added || len(created.GetOwnerReferences()) != 1 {
		t.Errorf("the first event has no object with one owner: %+v", event)
	}
}

// TestWorksShareAnObject: each work that applies an object owns it, also after the others have applied it again, and the object is deleted
// with the last of them.
func TestWorksShareAnObject(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	first := newBundle(consumer, "one")
	second := newBundle(consumer, "one")
	second.Manifests, second.Configs = first.Manifests, first.Configs
	owners := func(want int) {
		t.Helper()
		eventually.Soon(t, "the owners of the object", func() error {
			object, err := r.configMap(first.configMapName())
			if err == nil && len(object.GetOwnerReferences()) != want {
				err = fmt.Errorf("%d owners, want %d", len(object.GetOwnerReferences()), want)
			}
			return err
		})
	}
	cs.must("create", first)
	cs.must("create", second)
	cs.untilApplied(first.ID, 1)
	cs.untilApplied(second.ID, 1)
	owners(2)
	cs.must("update", first.with("two"))
	cs.untilApplied(first.ID, 2)
	owners(2)
	cs.must("update", second.with("two"))
	cs.untilApplied(second.ID, 2)
	owners(2)

	cs.must("delete", first)
	cs.untilDeleted(first.ID)
	owners(1)
	cs.must("delete", second)
	cs.untilDeleted(second.ID)
	r.untilGone(first.configMapName())
}
