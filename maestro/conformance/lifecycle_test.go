package conformance

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func (r *region) configMap(name string) (*unstructured.Unstructured, error) {
	return r.dynamic().Resource(configMaps).Namespace("default").Get(r.t.Context(), name, metav1.GetOptions{})
}

func (r *region) untilGone(name string) {
	r.t.Helper()
	eventually.Soon(r.t, "ConfigMap "+name+" is gone", func() error {
		_, err := r.configMap(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists: %v", err)
	})

}

// TestLifecycle creates, updates and deletes a resource.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	consumer := r.consumer(server)
	r.startAgent(consumer)
	cs := r.source(server, "cluster-service")
	cs.subscribe()

	b := newBundle(consumer, "one")
	start := time.Now()
	if version := cs.must("create", b); version != 1 {
		t.Fatalf("created at version %d", version)
	}
	cs.untilApplied(b.ID, 1)
	t.Logf("applied and reported after %s", time.Since(start))
	cs.until(b.ID, "fed back", func(st statusEvent) bool {
		return st.feedback("key") == "one" && st.is("Available") || st.feedback("key") == "one"
	})

	start = time.Now()
	if version := cs.must("update", b.with("two")); version != 2 {
		t.Fatalf("updated to version %d", version)
	}
	cs.untilApplied(b.ID, 2)
	cs.until(b.ID, "fed back", func(st statusEvent) bool { return st.feedback("key") == "two" })
	t.Logf("updated and fed back after %s", time.Since(start))

	// A change of the object by another client is reported at once, because the object is watched.
	start = time.Now()
	patch := []byte(`{"data":{"key":"theirs"}}`)
	must.Get(r.dynamic().Resource(configMaps).Namespace("default").Patch(t.Context(), b.configMapName(), types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	cs.until(b.ID, "fed back", func(st statusEvent) bool { return st.feedback("key") == "theirs" })
	t.Logf("change of another client fed back after %s", time.Since(start))

	start = time.Now()
	cs.must("delete", b)
	cs.untilDeleted(b.ID)
	t.Logf("deleted after %s", time.Since(start))
	r.untilGone(b.configMapName())
	if status := r.Call(server, "GET", "/resource-bundles/"+b.ID, nil, nil); status != 404 {
		t.Errorf("the deleted resource exists: %d", status)
	}
}

// TestDeletionWaitsForTheObjects: a work is reported as deleted as soon as all its objects are deleted, and not before.
func TestDeletionWaitsForTheObjects(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	consumer := r.consumer(server)
	r.startAgent(consumer)
	cs := r.source(server, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	objects := r.dynamic().Resource(configMaps).Namespace("default")
	finalizers := func(patch string) {
		t.Helper()
		must.Get(objects.Patch(t.Context(), b.configMapName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
	finalizers(`{"metadata":{"finalizers":["test.hcpmesh.io/hold"]}}`)
	cs.must("delete", b)
	r.terminating(b.configMapName())
	// Later works are not delayed, and the work is not deleted yet.
	sentinel := newBundle(consumer, "x")
	cs.must("create", sentinel)
	cs.untilApplied(sentinel.ID, 1)
	if cs.status(b.ID).is("Deleted") {
		t.Error("the work is reported as deleted although its object exists")
	}
	start := time.Now()
	finalizers(`{"metadata":{"finalizers":[]}}`)
	cs.untilDeleted(b.ID)
	t.Logf("confirmed %s after the object was deleted", time.Since(start))
}
