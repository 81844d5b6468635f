package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestForeignFields lets other clients change an applied object, and reads it as the status controller does: with and without a watch.
func TestForeignFields(t *testing.T) {
	client := must.Get(dynamic.NewForConfig(managementCluster(t)))(t)
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	deployments := client.Resource(gvr).Namespace("default")
	apply := func(manager, content string) {
		t.Helper()
		object := &unstructured.Unstructured{}
		must.Do(t, json.Unmarshal([]byte(content), &object.Object))
		must.Get(deployments.Apply(t.Context(), "foreign", object, metav1.ApplyOptions{FieldManager: manager, Force: true}))(t)
	}
	patch := func(manager, content string) {
		t.Helper()
		must.Get(deployments.Patch(t.Context(), "foreign", types.MergePatchType, []byte(content), metav1.PatchOptions{FieldManager: manager}))(t)
	}
	const head = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"foreign","namespace":"default"},"spec":`
	const spec = `{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	apply(workv1.DefaultFieldManager, head+spec)
	defer func() { // the next run of the test has the same API server
		if err := deployments.Delete(t.Context(), "foreign", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()

	ctx, stop := context.WithCancel(t.Context())
	watched := newObjects(ctx, client, slog.New(slog.DiscardHandler))
	defer func() { stop(); watched.wait() }()
	watched.mu.Lock()
	kind, err := watched.watch(gvr)
	watched.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	eventually.Soon(t, "the kind is listed", func() error {
		if !kind.informer.HasSynced() {
			return errors.New("not listed")
		}
		return nil
	})
	unwatched := newObjects(ctx, client, slog.New(slog.DiscardHandler))
	expect := func(reason string, want ...maestroapi.ForeignField) {
		t.Helper()
		for name, reader := range map[string]*objects{"watched": watched, "unwatched": unwatched} {
			eventually.Soon(t, reason+", "+name, func() error {
				object, err := reader.get(t.Context(), workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "default", Name: "foreign"})
				if err != nil {
					return err
				}
				var got []maestroapi.ForeignField
				if text := object.GetAnnotations()[maestroapi.AnnotationForeignFields]; text != "" {
					if err := json.Unmarshal([]byte(text), &got); err != nil {
						return err
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					return errors.New("(-want +got):\n" + diff)
				}
				return nil
			})
		}
	}
	expect("only the agent has set fields")
	patch("kubectl-edit", `{"metadata":{"annotations":{"`+maestroapi.AnnotationForeignFields+`":"[]","a":"b"}},"spec":{"paused":true,"revisionHistoryLimit":3}}`)
	paused := maestroapi.ForeignField{Path: "spec.paused", Manager: "kubectl-edit", Value: "true"}
	limit := maestroapi.ForeignField{Path: "spec.revisionHistoryLimit", Manager: "kubectl-edit", Value: "3"}
	expect("another client sets fields that no manifest sets", paused, limit)
	patch("kubectl-scale", `{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"c","image":"i","workingDir":"/x"}]}}}}`)
	replicas := maestroapi.ForeignField{Path: "spec.replicas", Manager: "kubectl-scale", Value: "5"}
	list := maestroapi.ForeignField{Path: `spec.template.spec.containers[name="c"].workingDir`, Manager: "kubectl-scale"}
	expect("another client changes fields of the manifest, and elements of its lists", paused, replicas, limit, list)
	apply(workv1.DefaultFieldManager, head+spec)
	patch("kubectl-edit", `{"spec":{"paused":null}}`)
	expect("the agent applies again, and a person removes a field", limit, list)
}

// TestPausedUntilIsReportedFirst checks that neither many fields of other clients nor many of HyperShift hide the field that stops HyperShift.
func TestPausedUntilIsReportedFirst(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pausedUntil": "true"}}}
	owned := func(manager string, fields ...string) {
		set := fieldpath.NewSet()
		for _, field := range fields {
			set.Insert(fieldpath.MakePathOrDie("spec", field))
		}
		raw := must.Get(set.ToJSON())(t)
		object.SetManagedFields(append(object.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: &metav1.FieldsV1{Raw: raw}}))
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("a%03d", i))
	}
	owned(workv1.DefaultFieldManager, "release")
	owned("hypershift-operator-manager", many...)
	owned("kubectl-edit", "pausedUntil")
	paused := maestroapi.ForeignField{Path: maestroapi.PathPausedUntil, Manager: "kubectl-edit", Value: "true"}
	if diff := cmp.Diff([]maestroapi.ForeignField{paused}, foreignFields(object)); diff != "" {
		t.Errorf("beside fields of HyperShift (-want +got):\n%s", diff)
	}
	owned("kubectl-patch", many...)
	if got := foreignFields(object); len(got) < 2 || got[0] != paused || got[1].Path != "spec.a000" {
		t.Errorf("beside fields of another client: %v", got)
	}
}
