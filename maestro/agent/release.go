package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// releaser takes finalizers off objects that are being deleted, where the source says that nobody else will: their
// controllers are gone. The source names the finalizers and where to look with the deletion of a work
// (maestroapi.AnnotationReleaseFinalizers), so that whoever decided it is known there. Nothing that is not being deleted already is
// touched.
type releaser struct {
	works     *works
	finalizer *finalizer
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
	log       *slog.Logger
}

// release looks at the work's own objects and into the namespaces that were named.
func (r *releaser) release(ctx context.Context, name string) error {
	work, err := freshLister{r.works}.Get(name)
	if err != nil || work.DeletionTimestamp.IsZero() {
		return nil
	}
	finalizers := list(work.Annotations[maestroapi.AnnotationReleaseFinalizers])
	if len(finalizers) == 0 {
		return nil
	}
	var failed []error
	for _, manifest := range work.Spec.Workload.Manifests {
		found, err := r.finalizer.find(ctx, manifest.Raw)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if found == nil {
			continue
		}
		gvr := schema.GroupVersionResource{Group: found.Group, Version: found.Version, Resource: found.Resource}
		failed = append(failed, r.releaseNamed(ctx, name, gvr, found.Namespace, found.Name, finalizers))
	}
	for _, namespace := range list(work.Annotations[maestroapi.AnnotationReleaseNamespaces]) {
		failed = append(failed, r.releaseIn(ctx, name, namespace, finalizers))
	}
	return errors.Join(failed...)
}

func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// releaseIn looks at a namespace and all that is in it. Kinds that cannot be listed do not keep it from the others.
func (r *releaser) releaseIn(ctx context.Context, work, namespace string, finalizers []string) error {
	_, err := r.objects.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	kinds, err := discovery.ServerPreferredNamespacedResources(r.discovery)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discover what can be in namespace %s: %w", namespace, err)
	}
	var failed []error
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, kinds) {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, kind := range group.APIResources {
			failed = append(failed, r.releaseKind(ctx, work, version.WithResource(kind.Name), namespace, finalizers))
		}
	}
	return errors.Join(append(failed, r.releaseNamed(ctx, work, namespaces, "", namespace, finalizers))...)
}

// pageSize bounds how many objects are in memory at a time.
const pageSize = 500

func (r *releaser) releaseKind(ctx context.Context, work string, gvr schema.GroupVersionResource, namespace string, finalizers []string) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.objects.Resource(gvr).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return nil
		case err != nil:
			return fmt.Errorf("list %s in namespace %s: %w", gvr.GroupResource(), namespace, err)
		}
		for i := range page.Items {
			if err := r.take(ctx, work, gvr, &page.Items[i], finalizers); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (r *releaser) releaseNamed(ctx context.Context, work string, gvr schema.GroupVersionResource, namespace, name string, finalizers []string) error {
	object, err := r.objects.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", gvr.GroupResource(), namespace, name, err)
	}
	return r.take(ctx, work, gvr, object, finalizers)
}

// take takes the finalizers off one object, if it is being deleted and has them.
func (r *releaser) take(ctx context.Context, work string, gvr schema.GroupVersionResource, object *unstructured.Unstructured, finalizers []string) error {
	if object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return slices.Contains(finalizers, f) })
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	// The version keeps a finalizer that somebody adds meanwhile.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": kept, "resourceVersion": object.GetResourceVersion()}})
	if err != nil {
		return err
	}
	_, err = r.objects.Resource(gvr).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "maestro-agent"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take finalizers off %s %s/%s: %w", gvr.GroupResource(), object.GetNamespace(), object.GetName(), err)
	}
	r.log.Info("audit", "action", "release-finalizers", "work", work, "kind", gvr.GroupResource().String(), "namespace", object.GetNamespace(),
		"name", object.GetName(), "finalizers", finalizers)
	return nil
}
