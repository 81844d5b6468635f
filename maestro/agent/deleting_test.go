package agent

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDeletionsAreAwaitedWithoutRequests polls an object with a finalizer as the controller of deletions does.
func TestDeletionsAreAwaitedWithoutRequests(t *testing.T) {
	config := managementCluster(t)
	direct := must.Get(dynamic.NewForConfig(config))(t)
	var requests atomic.Int64
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	a := newApplied(t.Context(), must.Get(metadata.NewForConfig(config))(t), newWorks("consumer", func(string) {}), slog.New(slog.DiscardHandler))
	rechecked := make(chan string, 10)
	a.recheck = func(names []string) { rechecked <- names[0] }
	t.Cleanup(a.wait)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	client := (&deletingClient{applied: a}).over(must.Get(dynamic.NewForConfig(counted))(t)).Resource(gvr).Namespace("default")

	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": "value"}}}
	object.SetGenerateName("deleting-")
	object.SetFinalizers([]string{"hcpmesh.example/test"})
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "work.open-cluster-management.io/v1", Kind: appliedWorkKind, Name: "hub-work", UID: "1"}})
	name := must.Get(direct.Resource(gvr).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{}))(t).GetName()
	for range 2 {
		if got := must.Get(client.Get(t.Context(), name, metav1.GetOptions{}))(t); got.GetDeletionTimestamp() != nil {
			t.Fatal("the object is being deleted already")
		}
	}
	must.Do(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests until the deletion began, want 3", got)
	}
	for range 5 {
		got := must.Get(client.Get(t.Context(), name, metav1.GetOptions{}))(t)
		if got.GetDeletionTimestamp() == nil || len(got.GetOwnerReferences()) != 1 {
			t.Errorf("read %v, want an object that is being deleted and has an owner", got.Object)
		}
	}
	if got := requests.Load(); got != 4 {
		t.Errorf("%d requests after five reads, want 4", got)
	}

	must.Get(direct.Resource(gvr).Namespace("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	if got := <-rechecked; got != "hub-work" {
		t.Errorf("rechecked %s, want hub-work", got)
	}
	if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading the deleted object: %v, want not found", err)
	}
}

// TestDeletionsThatEndUnseenAreReadAgain covers an object that disappears while it is read, and a watch that reports nothing.
func TestDeletionsThatEndUnseenAreReadAgain(t *testing.T) {
	a := newApplied(t.Context(), nil, newWorks("consumer", func(string) {}), slog.New(slog.DiscardHandler))
	a.recheck = func([]string) {}
	now := metav1.Now()
	a.now = func() time.Time { return now.Time }
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	a.kinds[gvr] = map[string]*appliedObject{} // is watched already
	deleting := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	deleting.SetDeletionTimestamp(&now)
	reads, duringRead := 0, func() {}
	read := func() error {
		_, err := a.readDeleting(gvr, "default/object", func() (*unstructured.Unstructured, error) {
			reads++
			duringRead()
			if reads == 2 {
				return nil, apierrors.NewNotFound(gvr.GroupResource(), "object")
			}
			return deleting, nil
		})
		return err
	}
	duringRead = func() {
		a.deleted(gvr, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "object"}})
	}
	if err := read(); !apierrors.IsNotFound(err) || reads != 2 {
		t.Errorf("an object that disappears while it is read: %d reads, %v; want two, not found", reads, err)
	}
	duringRead = func() {}
	must.Do(t, read())
	must.Do(t, read())
	if reads != 3 {
		t.Errorf("%d reads, want 3: the object is being deleted", reads)
	}
	now = metav1.NewTime(now.Add(deletionRecheck))
	must.Do(t, read())
	if reads != 4 {
		t.Errorf("%d reads, want 4: the last one is old", reads)
	}
	// The watch was interrupted, and its next list does not contain the object.
	a.replace(gvr, nil)
	must.Do(t, read())
	if reads != 5 {
		t.Errorf("%d reads, want 5: a list does not contain the object", reads)
	}
}
