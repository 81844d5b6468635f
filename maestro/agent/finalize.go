package agent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		object, err := f.find(ctx, manifest.Raw)
		if err != nil {
			return err
		}
		if object != nil && owns(live, object.owners) && !lists(complete, object) {
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
	live, err := f.objects.Resource(mapping.Resource).Namespace(wanted.GetNamespace()).Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", kind.Kind, wanted.GetNamespace(), wanted.GetName(), err)
	}
	return &foundObject{
		AppliedManifestResourceMeta: workv1.AppliedManifestResourceMeta{
			Version: mapping.Resource.Version, UID: string(live.GetUID()),
			ResourceIdentifier: workv1.ResourceIdentifier{
				Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Name: live.GetName(), Namespace: live.GetNamespace(),
			},
		},
		owners: live.GetOwnerReferences(),
	}, nil
}

func owns(applied *workv1.AppliedManifestWork, owners []metav1.OwnerReference) bool {
	for _, owner := range owners {
		if owner.UID == applied.UID {
			return true
		}
	}
	return false
}

func lists(applied *workv1.AppliedManifestWork, object *foundObject) bool {
	for _, listed := range applied.Status.AppliedResources {
		if listed.ResourceIdentifier == object.ResourceIdentifier {
			return true
		}
	}
	return false
}
