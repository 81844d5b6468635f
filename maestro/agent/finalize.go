package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// finalizer completes the list of applied objects before a deletion. The work agent updates the list in the AppliedManifestWork
// after it has applied the objects, and uses its cache to decide whether there is a list. A work that is deleted while it is
// being applied, or after the agent crashed there, would be reported as deleted although some of its objects exist.
type finalizer struct {
	works   *works
	hubHash string
	applied workv1client.AppliedManifestWorkInterface
	lister  worklisters.AppliedManifestWorkLister
	objects dynamic.Interface
	mapper  meta.RESTMapper
}

// completeAppliedResources makes the AppliedManifestWork of a work that is being deleted list all its applied objects. It returns
// an error until the cache contains the AppliedManifestWork.
func (f *finalizer) completeAppliedResources(ctx context.Context, name string) error {
	work, err := freshLister{f.works}.Get(name)
	if err != nil || work.DeletionTimestamp.IsZero() {
		return nil
	}
	appliedName := f.hubHash + "-" + name
	if cached, err := f.lister.Get(appliedName); err == nil && !cached.DeletionTimestamp.IsZero() {
		return nil // the list was complete when the deletion began
	}
	live, err := f.applied.Get(ctx, appliedName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the applied objects of work %s: %w", name, err)
	}
	if _, err := f.lister.Get(appliedName); err != nil {
		return apierrors.NewConflict(workv1.Resource("appliedmanifestworks"), appliedName, errors.New("not in the cache yet"))
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
		// Most objects are listed and need not be read.
		if named == nil || listsObject(complete, named.ResourceIdentifier) {
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
		return fmt.Errorf("updating the applied objects of work %s: %w", name, err)
	}
	return nil
}

type foundObject struct {
	workv1.AppliedManifestResourceMeta
	owners []metav1.OwnerReference
}

// find returns the object of a manifest, or nil if it does not exist.
func (f *finalizer) find(ctx context.Context, manifest []byte) (*foundObject, error) {
	named, err := f.identify(manifest)
	if err != nil || named == nil {
		return nil, err
	}
	return f.get(ctx, named)
}

// identify returns the identity of the object of a manifest, or nil if the object cannot exist.
func (f *finalizer) identify(manifest []byte) (*workv1.AppliedManifestResourceMeta, error) {
	var desired unstructured.Unstructured
	if err := desired.UnmarshalJSON(manifest); err != nil {
		// A malformed manifest was never applied.
		return nil, nil
	}
	kind := desired.GroupVersionKind()
	mapping, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discovering kind %s: %w", kind, err)
	}
	return &workv1.AppliedManifestResourceMeta{Version: mapping.Resource.Version, ResourceIdentifier: workv1.ResourceIdentifier{
		Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Name: desired.GetName(), Namespace: desired.GetNamespace(),
	}}, nil
}

// get returns an object, or nil if it does not exist.
func (f *finalizer) get(ctx context.Context, named *workv1.AppliedManifestResourceMeta) (*foundObject, error) {
	gvr := schema.GroupVersionResource{Group: named.Group, Version: named.Version, Resource: named.Resource}
	live, err := f.objects.Resource(gvr).Namespace(named.Namespace).Get(ctx, named.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", gvr.GroupResource(), named.Namespace, named.Name, err)
	}
	found := &foundObject{AppliedManifestResourceMeta: *named, owners: live.GetOwnerReferences()}
	found.UID = string(live.GetUID())
	return found, nil
}

func owns(applied *workv1.AppliedManifestWork, owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(owner metav1.OwnerReference) bool { return owner.UID == applied.UID })
}

func listsObject(applied *workv1.AppliedManifestWork, object workv1.ResourceIdentifier) bool {
	return slices.ContainsFunc(applied.Status.AppliedResources, func(listed workv1.AppliedManifestResourceMeta) bool {
		return listed.ResourceIdentifier == object
	})
}
