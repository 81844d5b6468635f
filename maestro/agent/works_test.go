package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func newWork(name string, generation int64, manifest string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}}
	w.Spec.Workload.Manifests = []workv1.Manifest{{}}
	w.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{"value":%q}`, manifest)
	return w
}

func deletion(name string, generation int64) *workv1.ManifestWork {
	w := newWork(name, generation, "")
	now := metav1.Now()
	w.DeletionTimestamp = &now
	return w
}

func (w *works) finalize(t *testing.T, name string) {
	t.Helper()
	work := must.Get(w.Get(t.Context(), name, metav1.GetOptions{}))(t)
	patch := fmt.Sprintf(`{"metadata":{"uid":"%s","resourceVersion":"%s","finalizers":[]}}`, work.UID, work.ResourceVersion)
	must.Get(w.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

func generation(w *works, name string) int64 {
	work, _ := w.Get(context.Background(), name, metav1.GetOptions{})
	if work == nil {
		return 0
	}
	return work.Generation
}

func TestWorksReceive(t *testing.T) {
	cases := map[string]struct {
		reason string
		events []*workv1.ManifestWork
		want   int64
		report int
	}{
		"New":          {"it is stored", []*workv1.ManifestWork{newWork("w", 1, "a")}, 1, 0},
		"Newer":        {"it replaces", []*workv1.ManifestWork{newWork("w", 1, "a"), newWork("w", 2, "b")}, 2, 0},
		"Older":        {"it arrived late", []*workv1.ManifestWork{newWork("w", 2, "b"), newWork("w", 1, "a")}, 2, 0},
		"Same":         {"the server missed the report", []*workv1.ManifestWork{newWork("w", 1, "a"), newWork("w", 1, "a")}, 1, 1},
		"SameManifest": {"the observed conditions still hold", []*workv1.ManifestWork{newWork("w", 1, "a"), newWork("w", 2, "a")}, 2, 1},
		"AfterDelete":  {"a deletion is not revoked", []*workv1.ManifestWork{newWork("w", 1, "a"), deletion("w", 1), newWork("w", 2, "b")}, 1, 0},
		"LateDelete":   {"it is of an earlier incarnation", []*workv1.ManifestWork{newWork("w", 3, "a"), deletion("w", 1)}, 3, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reports := 0
			w := newWorks("mgmt-1", func(string) { reports++ })
			for _, event := range c.events {
				w.receive(event)
			}
			if got := generation(w, "w"); got != c.want {
				t.Errorf("generation %d, want %d: %s", got, c.want, c.reason)
			}
			if reports != c.report {
				t.Errorf("%d reports, want %d: %s", reports, c.report, c.reason)
			}
		})
	}
}

func TestDeletedWorksAreRemembered(t *testing.T) {
	now := time.Now()
	w := newWorks("mgmt-1", func(string) {})
	w.now = func() time.Time { return now }
	w.receive(newWork("w", 2, "a"))
	w.receive(deletion("w", 2))
	w.finalize(t, "w")
	if work, gone := w.report("w"); !gone || work == nil {
		t.Fatal("the removal is not reported")
	}
	w.receive(newWork("w", 1, "a"))
	w.receive(newWork("w", 2, "a"))
	if generation(w, "w") != 0 {
		t.Error("a late event created a deleted work again")
	}
	w.receive(newWork("w", 3, "a"))
	if generation(w, "w") != 3 {
		t.Error("the next incarnation of the ID was not stored")
	}
	w.receive(deletion("w", 3))
	w.finalize(t, "w")
	now = now.Add(tombstoneAge + time.Second)
	w.receive(newWork("w", 3, "a"))
	if generation(w, "w") != 3 {
		t.Error("the work was not stored although its tombstone has expired")
	}
}

func TestWorksRejectStalePatches(t *testing.T) {
	w := newWorks("mgmt-1", func(string) {})
	w.receive(newWork("w", 1, "a"))
	old, _ := w.Get(t.Context(), "w", metav1.GetOptions{})
	w.receive(newWork("w", 2, "b"))
	patch := must.Get(json.Marshal(map[string]any{"metadata": map[string]any{"uid": old.UID, "resourceVersion": old.ResourceVersion}, "status": map[string]any{}}))(t)
	if _, err := w.Patch(t.Context(), "w", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); !apierrors.IsConflict(err) {
		t.Errorf("a patch of an older work: %v", err)
	}
}

// TestWatchMissesNoChange changes works between a list and its watch. One event for several modifications is enough.
func TestWatchMissesNoChange(t *testing.T) { synctest.Test(t, testWatchMissesNoChange) }

func testWatchMissesNoChange(t *testing.T) {
	w := newWorks("mgmt-1", func(string) {})
	w.receive(newWork("before", 1, "a"))
	list, err := w.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d works, %v", len(list.Items), err)
	}
	w.receive(newWork("between", 1, "a"))
	for g := int64(2); g < 100; g++ {
		w.receive(newWork("between", g, fmt.Sprint(g)))
	}
	w.receive(deletion("before", 1))
	w.finalize(t, "before")
	watcher := must.Get(w.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion}))(t)
	defer watcher.Stop()
	var got []string
	for len(got) < 3 {
		event := <-watcher.ResultChan() // synctest fails the test if there is none
		work := event.Object.(*workv1.ManifestWork)
		if event.Type != watch.Modified {
			got = append(got, fmt.Sprintf("%s %s %d", event.Type, work.Name, work.Generation))
		} else if work.Name == "before" {
			got = append(got, "MODIFIED before 1")
		}
	}
	if want := "[ADDED between 99 MODIFIED before 1 DELETED before 1]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if _, err := w.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch without its list: %v", err)
	}
}
