package conformance

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestObjectThatIsOnlyRead follows an object of another client that a work only reads: it does not exist, is created, is replaced by
// one with another identity and survives the work. Meanwhile nothing else of the work changes.
func TestObjectThatIsOnlyRead(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	b, name := newBundle(consumer, "x"), unique("foreign")
	b.Manifests = append(b.Manifests, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}})
	b.Configs = append(b.Configs, workv1.ManifestConfigOption{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "default", Name: name},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly}, FeedbackScrapeType: workv1.FeedbackWatchType,
		FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "foreignUID", Path: ".metadata.uid"}}}}})
	objects := r.dynamic().Resource(configMaps).Namespace("default")
	create := func() types.UID {
		t.Helper()
		created := must.Get(objects.Create(t.Context(), &unstructured.Unstructured{Object: b.Manifests[1].(map[string]any)}, metav1.CreateOptions{}))(t)
		return created.GetUID()
	}
	// available returns the status of the object's condition Available.
	available := func(st statusEvent) metav1.ConditionStatus {
		for _, manifest := range st.Resources {
			if manifest.ResourceMeta.Name == name {
				if c := meta.FindStatusCondition(manifest.Conditions, workv1.ManifestAvailable); c != nil {
					return c.Status
				}
			}
		}
		return ""
	}

	cs.must("create", b)
	missing := cs.until(b.ID, "reported as missing", func(st statusEvent) bool { return available(st) == metav1.ConditionFalse })
	if !missing.applied(1) {
		t.Errorf("the work is not applied although its own objects are: %+v", missing.Conditions)
	}
	if _, err := objects.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		t.Error("the agent created an object that it must only read")
	}
	first := create()
	cs.until(b.ID, "the created object is reported", func(st statusEvent) bool {
		return available(st) == metav1.ConditionTrue && st.feedback("foreignUID") == string(first)
	})
	r.remove(configMaps, "default", name)
	cs.until(b.ID, "the removal is reported", func(st statusEvent) bool { return available(st) == metav1.ConditionFalse })
	second := create()
	replaced := cs.until(b.ID, "its successor is reported", func(st statusEvent) bool {
		return available(st) == metav1.ConditionTrue && st.feedback("foreignUID") == string(second)
	})
	if removed, again := replaced.removal(name); removed != nil || again != nil || !replaced.applied(1) {
		t.Errorf("%s and %s are about objects that the agent applies: %+v, %+v", maestroapi.ConditionRemoved, maestroapi.ConditionAppliedAgain, removed, again)
	}
	cs.must("delete", b)
	cs.untilDeleted(b.ID)
	if now := r.uid(configMaps, "default", name); now != second {
		t.Errorf("the deletion of the work removed the object: %s, before %s", now, second)
	}
}
