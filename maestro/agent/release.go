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
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// releaser removes finalizers of controllers that do not exist any more. The source names the finalizers and the namespaces in the
// deletion of a work (maestroapi.AnnotationReleaseFinalizers); it also records who decided that. The releaser changes only
// objects that are being deleted.
type releaser struct {
	works     *works
	finalizer *finalizer
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
	log       *slog.Logger
}

// release removes the finalizers from the objects of a work and from all objects in the named namespaces.
func (r *releaser) release(ctx context.Context, name string) error {
	work, err := freshLister{r.works}.Get(name)
	if err != nil || work.DeletionTimestamp.IsZero() {
		return nil
	}
	finalizers := splitList(work.Annotations[maestroapi.AnnotationReleaseFinalizers])
	if len(finalizers) == 0 {
		return nil
	}
	var errs []error
	for _, manifest := range work.Spec.Workload.Manifests {
		found, err := r.finalizer.find(ctx, manifest.Raw)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if found == nil {
			continue
		}
		gvr := schema.GroupVersionResource{Group: found.Group, Version: found.Version, Resource: found.Resource}
		errs = append(errs, r.releaseObject(ctx, name, gvr, found.Namespace, found.Name, finalizers))
	}
	for _, namespace := range splitList(work.Annotations[maestroapi.AnnotationReleaseNamespaces]) {
		errs = append(errs, r.releaseNamespace(ctx, name, namespace, finalizers))
	}
	return errors.Join(errs...)
}

func splitList(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// releaseNamespace removes the finalizers from a namespace and from all objects in it. It continues after kinds that cannot be
// listed.
func (r *releaser) releaseNamespace(ctx context.Context, work, namespace string, finalizers []string) error {
	_, err := r.objects.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	kinds, err := discovery.ServerPreferredNamespacedResources(r.discovery)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discovering the kinds in namespace %s: %w", namespace, err)
	}
	var errs []error
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, kinds) {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, kind := range group.APIResources {
			errs = append(errs, r.releaseKind(ctx, work, version.WithResource(kind.Name), namespace, finalizers))
		}
	}
	return errors.Join(append(errs, r.releaseObject(ctx, work, namespaces, "", namespace, finalizers))...)
}

// pageSize bounds the objects that are in memory at a time.
const pageSize = 500

func (r *releaser) releaseKind(ctx context.Context, work string, gvr schema.GroupVersionResource, namespace string, finalizers []string) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.objects.Resource(gvr).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return nil
		case err != nil:
			return fmt.Errorf("listing %s in namespace %s: %w", gvr.GroupResource(), namespace, err)
		}
		for i := range page.Items {
			if err := r.removeFinalizers(ctx, work, gvr, &page.Items[i], finalizers); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (r *releaser) releaseObject(ctx context.Context, work string, gvr schema.GroupVersionResource, namespace, name string, finalizers []string) error {
	object, err := r.objects.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", gvr.GroupResource(), namespace, name, err)
	}
	return r.removeFinalizers(ctx, work, gvr, object, finalizers)
}

// removeFinalizers removes the finalizers from one object, if it is being deleted and has them.
func (r *releaser) removeFinalizers(ctx context.Context, work string, gvr schema.GroupVersionResource, object *unstructured.Unstructured, finalizers []string) error {
	if object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	remaining := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return slices.Contains(finalizers, f) })
	if len(remaining) == len(object.GetFinalizers()) {
		return nil
	}
	// The resource version rejects the patch if another client has changed the finalizers.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": remaining, "resourceVersion": object.GetResourceVersion()}})
	if err != nil {
		return err
	}
	_, err = r.objects.Resource(gvr).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "maestro-agent"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing finalizers of %s %s/%s: %w", gvr.GroupResource(), object.GetNamespace(), object.GetName(), err)
	}
	r.log.InfoContext(ctx, "finalizers removed", logkey.Action, "release-finalizers", logkey.Work, work, logkey.Kind, gvr.GroupResource().String(),
		logkey.Namespace, object.GetNamespace(), logkey.Name, object.GetName(), logkey.Finalizers, finalizers)
	return nil
}
