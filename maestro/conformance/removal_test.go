package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// removals returns the conditions about the removal of the object with a name.
func (s statusEvent) removal(name string) (removed, again *metav1.Condition) {
	for _, manifest := range s.Resources {
		if manifest.ResourceMeta.Name == name {
			return meta.FindStatusCondition(manifest.Conditions, maestroapi.ConditionRemoved), meta.FindStatusCondition(manifest.Conditions, maestroapi.ConditionAppliedAgain)
		}
	}
	return nil, nil
}

// untilAppliedAgain waits until the removal of an object with an identity and its new creation are reported.
func (s *source) untilAppliedAgain(id, name string, old types.UID) statusEvent {
	s.t.Helper()
	return s.until(id, name+" is applied again", func(st statusEvent) bool {
		removed, again := st.removal(name)
		return removed != nil && strings.Contains(removed.Message, string(old)) && again.Status == metav1.ConditionTrue
	})
}

// firstReport returns when the first status arrived that satisfies a condition.
func (s *source) firstReport(id string, condition func(statusEvent) bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.seen[id] {
		if condition(st) {
			return st.At
		}
	}
	return time.Time{}
}

func (r *region) uid(gvr schema.GroupVersionResource, namespace, name string) types.UID {
	r.t.Helper()
	object := must.Get(r.dynamic().Resource(gvr).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{}))(r.t)
	return object.GetUID()
}

func (r *region) remove(gvr schema.GroupVersionResource, namespace, name string) time.Time {
	r.t.Helper()
	must.Do(r.t, r.dynamic().Resource(gvr).Namespace(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}))
	return time.Now()
}

var (
	secrets       = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaceKind = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// TestRemovedObjectIsAppliedAgain deletes an object with feedback, and one without, while the agent watches them.
func TestRemovedObjectIsAppliedAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b := newBundle(consumer, "x")
	secret := unique("secret")
	b.Manifests = append(b.Manifests, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": secret, "namespace": "default"}})
	cs.must("create", b)
	cs.untilFedBack(b.ID, 1, "x")
	for _, object := range []struct {
		gvr  schema.GroupVersionResource
		name string
	}{{configMaps, b.configMapName()}, {secrets, secret}} {
		old := r.uid(object.gvr, "default", object.name)
		at := r.remove(object.gvr, "default", object.name)
		st := cs.untilAppliedAgain(b.ID, object.name, old)
		removed, again := st.removal(object.name)
		if removed.Reason != maestroapi.RemovedDeleted || again.LastTransitionTime.Before(&removed.LastTransitionTime) {
			t.Errorf("%s: reported %+v and %+v", object.name, removed, again)
		}
		if now := r.uid(object.gvr, "default", object.name); now == old {
			t.Errorf("%s has its old identity", object.name)
		}
		reported := cs.firstReport(b.ID, func(st statusEvent) bool { removed, _ := st.removal(object.name); return removed != nil })
		t.Logf("%s: removal reported after %s, exists again and reported after %s", object.gvr.Resource, reported.Sub(at), st.At.Sub(at))
	}
	cs.untilFedBack(b.ID, 1, "x")
}

// TestRemovalWithFinalizerIsReported deletes an object that a finalizer keeps: the removal is reported while the object still
// exists, and the object is applied again when it is gone.
func TestRemovalWithFinalizerIsReported(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	name := b.configMapName()
	r.addFinalizer(name, "gone.hcpmesh.io/hook")
	old := r.uid(configMaps, "default", name)
	r.remove(configMaps, "default", name)
	cs.until(b.ID, "being deleted", func(st statusEvent) bool {
		removed, again := st.removal(name)
		return removed != nil && removed.Reason == maestroapi.RemovedBeingDeleted && again.Status == metav1.ConditionFalse
	})
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	must.Get(r.dynamic().Resource(configMaps).Namespace("default").Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	cs.untilAppliedAgain(b.ID, name, old)
}

// TestRemovedNamespaceIsAppliedAgain deletes a namespace that one work applies and in which another one has its objects. It takes
// longer than several attempts to apply the objects, because a finalizer keeps one of them. Both works are applied again as soon as
// the namespace is gone.
func TestRemovedNamespaceIsAppliedAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.runControllerManager()
	_, consumer, cs := r.withAgent()
	namespace, name, kept := unique("ocm"), unique("cm"), unique("kept")
	first := bundle{ID: uuid.NewString(), Consumer: consumer,
		Manifests: []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}}
	second := bundle{ID: uuid.NewString(), Consumer: consumer, Manifests: []any{in(namespace, configMap(name, "x")), in(namespace, configMap(kept, "x"))}}
	for _, b := range []bundle{first, second} {
		cs.must("create", b)
	}
	cs.untilApplied(first.ID, 1)
	cs.untilApplied(second.ID, 1)
	objects := r.dynamic().Resource(configMaps).Namespace(namespace)
	must.Get(objects.Patch(t.Context(), kept, types.MergePatchType, []byte(`{"metadata":{"finalizers":["gone.hcpmesh.io/hook"]}}`), metav1.PatchOptions{}))(t)
	oldNamespace, oldObject, oldKept := r.uid(namespaceKind, "", namespace), r.uid(configMaps, namespace, name), r.uid(configMaps, namespace, kept)
	at := r.remove(namespaceKind, "", namespace)
	for id, object := range map[string]string{first.ID: namespace, second.ID: kept} {
		cs.until(id, "being deleted", func(st statusEvent) bool { removed, _ := st.removal(object); return removed != nil })
	}
	reported := cs.firstReport(first.ID, func(st statusEvent) bool { removed, _ := st.removal(namespace); return removed != nil })
	// The attempts to apply the deleted object fail while the namespace is being deleted.
	cs.until(second.ID, "rejected", func(st statusEvent) bool {
		applied := meta.FindStatusCondition(st.Conditions, workv1.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse
	})
	must.Get(objects.Patch(t.Context(), kept, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	var gone time.Time
	eventually.Soon(t, "the namespace is deleted", func() error {
		object, err := r.dynamic().Resource(namespaceKind).Get(t.Context(), namespace, metav1.GetOptions{})
		if gone = time.Now(); apierrors.IsNotFound(err) || err == nil && object.GetUID() != oldNamespace {
			return nil
		}
		return fmt.Errorf("it exists: %v", err)
	})

	cs.untilAppliedAgain(first.ID, namespace, oldNamespace)
	cs.untilAppliedAgain(second.ID, name, oldObject)
	st := cs.untilAppliedAgain(second.ID, kept, oldKept)
	t.Logf("removal reported after %s; all objects exist again %s after the namespace was gone", reported.Sub(at), st.At.Sub(gone))
}

// TestDependentIsAppliedAfterItsOwner removes an object and the object that owns it. While the owner is being deleted, its
// dependent is not applied, because the owner's controller would delete it again and wait for that.
func TestDependentIsAppliedAfterItsOwner(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	owner, dependent := newBundle(consumer, "x"), newBundle(consumer, "x")
	for _, b := range []bundle{owner, dependent} {
		cs.must("create", b)
		cs.untilApplied(b.ID, 1)
	}
	ownerName, name := owner.configMapName(), dependent.configMapName()
	oldOwner, old := r.uid(configMaps, "default", ownerName), r.uid(configMaps, "default", name)
	objects := r.dynamic().Resource(configMaps).Namespace("default")
	live := must.Get(objects.Get(t.Context(), name, metav1.GetOptions{}))(t)
	live.SetOwnerReferences(append(live.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: ownerName, UID: oldOwner}))
	must.Get(objects.Update(t.Context(), live, metav1.UpdateOptions{}))(t)
	r.addFinalizer(ownerName, "gone.hcpmesh.io/hook")
	r.remove(configMaps, "default", ownerName)
	cs.until(owner.ID, "being deleted", func(st statusEvent) bool { removed, _ := st.removal(ownerName); return removed != nil })
	r.remove(configMaps, "default", name)
	cs.until(dependent.ID, "deleted", func(st statusEvent) bool {
		removed, _ := st.removal(name)
		return removed != nil && removed.Reason == maestroapi.RemovedDeleted
	})
	// Another work is applied meanwhile, so the agent had the time to apply the dependent.
	sentinel := newBundle(consumer, "x")
	cs.must("create", sentinel)
	cs.untilFedBack(sentinel.ID, 1, "x")
	if _, err := r.configMap(name); !apierrors.IsNotFound(err) {
		t.Errorf("the dependent was applied while its owner is being deleted: %v", err)
	}
	must.Get(objects.Patch(t.Context(), ownerName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	cs.untilAppliedAgain(owner.ID, ownerName, oldOwner)
	cs.untilAppliedAgain(dependent.ID, name, old)
}

// TestRemovalDuringAgentOutageIsReported removes an object while the agent is stopped. The agent finds another identity than the
// one that it applied.
func TestRemovalDuringAgentOutageIsReported(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilFedBack(b.ID, 1, "x")
	r.untilAppliedIdentity(b.ID, b.configMapName())
	old := r.uid(configMaps, "default", b.configMapName())
	agent.Stop()
	r.remove(configMaps, "default", b.configMapName())
	r.startAgent(consumer)
	cs.untilAppliedAgain(b.ID, b.configMapName(), old)
}

// TestOwnDeletionsAreNotRemovals deletes an object by a new version of its work, and another one with its work.
func TestOwnDeletionsAreNotRemovals(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b, extra := newBundle(consumer, "x"), unique("extra")
	one := b
	b.Manifests = append(b.Manifests, configMap(extra, "x"))
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	cs.must("update", one)
	cs.untilApplied(b.ID, 2)
	r.untilGone(extra)
	cs.must("delete", one)
	cs.untilDeleted(b.ID)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, st := range cs.seen[b.ID] {
		for _, name := range []string{extra, b.configMapName()} {
			if removed, _ := st.removal(name); removed != nil {
				t.Errorf("the agent's own deletion of %s was reported: %+v", name, removed)
			}
		}
	}
}

var controllerManager sync.Once

// runControllerManager runs the namespace and garbage collection controllers in the management cluster of all tests.
func (r *region) runControllerManager() {
	r.t.Helper()
	controllerManager.Do(func() {
		must.Do(r.t, management.Cluster(r.t).RunControllers(context.Background()))
	})
}

// in returns a manifest in another namespace.
func in(namespace string, manifest map[string]any) map[string]any {
	manifest["metadata"].(map[string]any)["namespace"] = namespace
	return manifest
}

// untilAppliedIdentity waits until the AppliedManifestWork of a bundle has the identity of its object.
func (r *region) untilAppliedIdentity(id, name string) {
	r.t.Helper()
	works := schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "appliedmanifestworks"}
	eventually.Soon(r.t, "the identity of "+name+" is stored", func() error {
		list, err := r.dynamic().Resource(works).List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, item := range list.Items {
			applied, _, _ := unstructured.NestedSlice(item.Object, "status", "appliedResources")
			if strings.HasSuffix(item.GetName(), id) && len(applied) > 0 {
				return nil
			}
		}
		return fmt.Errorf("none of %d AppliedManifestWorks has it", len(list.Items))
	})

}
