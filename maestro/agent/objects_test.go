package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestObjectsOfDeletedWorksAreReadFromWatches reads an object that exists and that the watch of its kind does not have.
func TestObjectsOfDeletedWorksAreReadFromWatches(t *testing.T) {
	client := must.Get(dynamic.NewForConfig(managementCluster(t)))(t)
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader := newObjects(ctx, client, slog.New(slog.DiscardHandler))
	reader.mu.Lock()
	kind, err := reader.watch(gvr)
	reader.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	eventually.Soon(t, "the kind is listed", func() error {
		if !kind.informer.HasSynced() {
			return errors.New("not listed")
		}
		return nil
	})
	stop()
	reader.wait()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "unseen-"}}}
	created := must.Get(client.Resource(gvr).Namespace("default").Create(t.Context(), object, metav1.CreateOptions{}))(t)

	works := newWorks("consumer", func(string) {})
	now := metav1.Now()
	works.receive(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "kept"}})
	works.receive(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: &now}})
	of := workv1.ManifestResourceMeta{Version: gvr.Version, Resource: gvr.Resource, Namespace: "default", Name: created.GetName()}
	if _, err := reader.get(freshLister{works}.withDeletion(t.Context(), "kept"), of); err != nil {
		t.Errorf("an object of a work that the agent may have just applied: %v", err)
	}
	if _, err := reader.get(freshLister{works}.withDeletion(t.Context(), "deleted"), of); !apierrors.IsNotFound(err) {
		t.Errorf("an object of a deleted work: %v, want it not to be found in the watch", err)
	}
}
