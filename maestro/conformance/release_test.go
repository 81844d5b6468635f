package conformance

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// addFinalizer adds a finalizer without a controller to a ConfigMap of the default namespace.
func (r *region) addFinalizer(name, finalizer string) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer)
	must.Get(r.dynamic().Resource(configMaps).Namespace("default").Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(r.t)
}

// terminating waits until a ConfigMap is being deleted.
func (r *region) terminating(name string) {
	r.t.Helper()
	eventually.Soon(r.t, "ConfigMap "+name+" is being deleted", func() error {
		object, err := r.configMap(name)
		if err == nil && object.GetDeletionTimestamp() == nil {
			err = fmt.Errorf("it has no deletion timestamp; its finalizers are %q", object.GetFinalizers())
		}
		return err
	})

}

func releasing(b bundle, finalizers, namespaces string) bundle {
	b.Metadata = map[string]any{"name": b.ID, "annotations": map[string]string{maestroapi.AnnotationReleaseFinalizers: finalizers, maestroapi.AnnotationReleaseNamespaces: namespaces}}
	return b
}

// TestFinalizersAreReleased deletes a work whose object has the finalizer of a controller that does not exist, and another object with
// it. A deletion with the release annotations makes the agent remove the finalizer from both, but not from objects that are not
// being deleted.
func TestFinalizersAreReleased(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b, kept := newBundle(consumer, "x"), newBundle(consumer, "y")
	for _, one := range []bundle{b, kept} {
		cs.must("create", one)
		cs.untilApplied(one.ID, 1)
	}
	gone := unique("gone") + ".hcpmesh.io/hook"
	other := unique("other") + ".hcpmesh.io/hook"
	beside := unique("beside")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": beside}}}
	must.Get(r.dynamic().Resource(configMaps).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{}))(t)
	for _, name := range []string{b.configMapName(), kept.configMapName(), beside} {
		r.addFinalizer(name, gone)
	}
	must.Do(t, r.dynamic().Resource(configMaps).Namespace("default").Delete(t.Context(), beside, metav1.DeleteOptions{}))
	cs.must("delete", b)
	r.terminating(b.configMapName())

	// The finalizer of another controller has no effect.
	cs.must("delete", releasing(b, other, ""))
	sentinel := newBundle(consumer, "z")
	cs.must("create", sentinel)
	cs.untilApplied(sentinel.ID, 1)
	r.terminating(b.configMapName())

	cs.must("delete", releasing(b, other+","+gone, "default"))
	cs.untilDeleted(b.ID)
	r.untilGone(b.configMapName())
	r.untilGone(beside)
	if object, err := r.configMap(kept.configMapName()); err != nil || len(object.GetFinalizers()) != 1 {
		t.Errorf("an object that is not being deleted: %v, %v", object, err)
	}
}

// TestReleaseReachesARestartedAgent requests a deletion and a release while the agent is stopped: it receives both in its resync.
func TestReleaseReachesARestartedAgent(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	r.addFinalizer(b.configMapName(), "gone.hcpmesh.io/hook")
	agent.Stop()
	cs.must("delete", b)
	cs.must("delete", releasing(b, "gone.hcpmesh.io/hook", ""))
	r.startAgent(consumer)
	cs.untilDeleted(b.ID)
	if _, err := r.configMap(b.configMapName()); !apierrors.IsNotFound(err) {
		t.Errorf("the object: %v", err)
	}
}

// TestFeedbackDuringDeletion: feedback of an object is reported until it is deleted, because it may contain what it waits for.
func TestFeedbackDuringDeletion(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilFedBack(b.ID, 1, "x")
	r.addFinalizer(b.configMapName(), "gone.hcpmesh.io/hook")
	cs.must("delete", b)
	cs.until(b.ID, "being deleted", func(st statusEvent) bool { return st.is("Deleting") })
	r.terminating(b.configMapName())
	patch := []byte(`{"data":{"key":"still waiting"}}`)
	must.Get(r.dynamic().Resource(configMaps).Namespace("default").Patch(t.Context(), b.configMapName(), types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	cs.until(b.ID, "fed back", func(st statusEvent) bool { return st.feedback("key") == "still waiting" })
	cs.must("delete", releasing(b, "gone.hcpmesh.io/hook", ""))
	cs.untilDeleted(b.ID)
}
