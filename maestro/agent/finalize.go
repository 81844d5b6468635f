package agent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// finalizer closes what the work agent leaves open at a work's end. That one lists the applied objects in the
// AppliedManifestWork after it has applied them, and trusts its cache about whether there is such a list. So a work that
// is deleted while it is being applied, or right after the agent was killed there, would be declared gone with objects
// left behind.
type finalizer struct {
	works   *works
	hubHash string
	applied workv1client.AppliedManifestWorkInterface
	lister  worklisters.AppliedManifestWorkLister
	objects dynamic.Interface
	mapper  meta.RESTMapper
}

// prepare makes sure, before a work that is being deleted is finalized, that the cache knows its AppliedManifestWork and
// that this one lists everything that was applied.
func (f *finalizer) prepare(ctx context.Context, name string) error {
	work, err := freshLister{f.works}.Get(name)
	if err != nil || work.DeletionTimestamp.IsZero() {
		return nil
	}
	appliedName := f.hubHash + "-" + name
	if cached, err := f.lister.Get(appliedName); err == nil && !cached.DeletionTimestamp.IsZero() {
		return nil // it was complete when it was deleted, and now only gets shorter
	}
	live, err := f.applied.Get(ctx, appliedName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what work %s has applied: %w", name, err)
	}
	if _, err := f.lister.Get(appliedName); err != nil {
		return apierrors.NewConflict(workv1.Resource("appliedmanifestworks"), appliedName, fmt.Errorf("the cache does not know it yet"))
	}
	if !live.DeletionTimestamp.IsZero() {
		return nil
	}
	complete := live.DeepCopy()
	for _, manifest := range work.Spec.Workload.Manifests {
		named, err := f.identify(manifest.Raw)
		if err != nil {
			return err
		}
		// Most are listed, and need not be asked for.
		if named == nil || lists(complete, named.ResourceIdentifier) {
			continue
		}
		object, err := f.get(ctx, named)
		if err != nil {
			return err
		}
		if object != nil && owns(live, object.owners) {
			complete.Status.AppliedResources = append(complete.Status.AppliedResources, object.AppliedManifestResourceMeta)
		}
	}
	if len(complete.Status.AppliedResources) == len(live.Status.AppliedResources) {
		return nil
	}
	if _, err := f.applied.UpdateStatus(ctx, complete, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("list what work %s has applied: %w", name, err)
	}
	return nil
}

type foundObject struct {
	workv1.AppliedManifestResourceMeta
	owners []metav1.OwnerReference
}

// find looks for the object that a manifest describes; nil when there is none.
func (f *finalizer) find(ctx context.Context, manifest []byte) (*foundObject, error) {
	named, err := f.identify(manifest)
	if err != nil || named == nil {
		return nil, err
	}
	return f.get(ctx, named)
}

// identify names the object that a manifest describes; nil when there can be none.
func (f *finalizer) identify(manifest []byte) (*workv1.AppliedManifestResourceMeta, error) {
	var wanted unstructured.Unstructured
	if err := wanted.UnmarshalJSON(manifest); err != nil {
		// What cannot be read was never applied.
		return nil, nil
	}
	kind := wanted.GroupVersionKind()
	mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discover kind %s: %w", kind, err)
	}
	return &workv1.AppliedManifestResourceMeta{Version: mapping.Resource.Version, ResourceIdentifier: workv1.ResourceIdentifier{
		Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Name: wanted.GetName(), Namespace: wanted.GetNamespace(),
	}}, nil
}

// get reads an object; nil when there is none.
func (f *finalizer) get(ctx context.Context, named *workv1.AppliedManifestResourceMeta) (*foundObject, error) {
	gvr := schema.GroupVersionResource{Group: named.Group, Version: named.Version, Resource: named.Resource}
	live, err := f.objects.Resource(gvr).Namespace(named.Namespace).Get(ctx, named.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", gvr.GroupResource(), named.Namespace, named.Name, err)
	}
	found := &foundObject{AppliedManifestResourceMeta: *named, owners: live.GetOwnerReferences()}
	found.UID = string(live.GetUID())
	return found, nil
}

func owns(applied *workv1.AppliedManifestWork, owners []metav1.OwnerReference) bool {
	for _, owner := range owners {
		if owner.UID == applied.UID {
			return true
		}
	}
	return false
}

func lists(applied *workv1.AppliedManifestWork, object workv1.ResourceIdentifier) bool {
	for _, listed := range applied.Status.AppliedResources {
		if listed.ResourceIdentifier == object {
			return true
		}
	}
	return false
}
