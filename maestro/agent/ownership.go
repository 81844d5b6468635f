package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/ocm/pkg/work/helper"
)

// ownership adds the owner reference of a work to the request that applies an object. The work agent adds it with a second request, which
// conflicts with the first write of the object's controller; the agent then applies the object again.
//
// Server-side apply removes the references of the agent's field manager that a request omits. A request for an object of several works
// therefore keeps the references that the object has.
type ownership struct {
	applied *applied
	works   cache.Indexer // AppliedManifestWorks with the index byAppliedObject
	// shared is held from the read of an object of several works until it is applied.
	shared sync.Mutex
}

// byAppliedObject is the index of AppliedManifestWorks by the objects in their status.
const byAppliedObject = "appliedObject"

func appliedObjectIndexers() cache.Indexers {
	return cache.Indexers{byAppliedObject: func(object any) ([]string, error) {
		work, ok := object.(*workv1.AppliedManifestWork)
		if !ok {
			return nil, fmt.Errorf("unexpected object %T", object)
		}
		keys := make([]string, len(work.Status.AppliedResources))
		for i, r := range work.Status.AppliedResources {
			keys[i] = objectKey{schema.GroupResource{Group: r.Group, Resource: r.Resource}, r.Namespace, r.Name}.String()
		}
		return keys, nil
	}}
}

// apply applies an object of the work of the attempt in the context.
func (o *ownership) apply(ctx context.Context, client dynamic.ResourceInterface, key objectKey, object *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error) {
	a := attemptOf(ctx)
	if a == nil || a.owner == nil {
		return client.Apply(ctx, key.name, object, options, subresources...)
	}
	object = object.DeepCopy()
	if helper.OwnedByTheWork(key.resource.WithVersion(""), key.namespace, key.name, a.work.Spec.DeleteOption) {
		addOwners(object, *helper.NewAppliedManifestWorkOwner(a.owner))
	}
	if o.isShared(a, key) {
		o.shared.Lock()
		defer o.shared.Unlock()
		live, err := client.Get(ctx, key.name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil {
			addOwners(object, slices.DeleteFunc(live.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
				return r.Kind != appliedWorkKind || r.UID == a.owner.UID
			})...)
		}
		return client.Apply(ctx, key.name, object, options, subresources...)
	}
	result, err := client.Apply(ctx, key.name, object, options, subresources...)
	// A work that began to apply the object meanwhile may have lost its reference.
	for _, other := range o.applied.othersOf(a.work.Name, key) {
		o.applied.apply(other, 0)
	}
	return result, err
}

// isShared reports whether another work applies an object, or has applied it.
func (o *ownership) isShared(a *attempt, key objectKey) bool {
	if len(o.applied.othersOf(a.work.Name, key)) > 0 {
		return true
	}
	works, err := o.works.ByIndex(byAppliedObject, key.String())
	return err != nil || slices.ContainsFunc(works, func(object any) bool {
		return object.(*workv1.AppliedManifestWork).UID != a.owner.UID
	})
}

// addOwners adds owner references that an object does not have.
func addOwners(object *unstructured.Unstructured, owners ...metav1.OwnerReference) {
	all := object.GetOwnerReferences()
	for _, owner := range owners {
		if !slices.ContainsFunc(all, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
			all = append(all, owner)
		}
	}
	object.SetOwnerReferences(all)
}

// ownerClient is a client of AppliedManifestWorks that stores a created one in the attempt of its context. The cache has it only later.
type ownerClient struct {
	workv1client.AppliedManifestWorkInterface
}

// Create implements workv1client.AppliedManifestWorkInterface.
func (c ownerClient) Create(ctx context.Context, work *workv1.AppliedManifestWork, options metav1.CreateOptions) (*workv1.AppliedManifestWork, error) {
	created, err := c.AppliedManifestWorkInterface.Create(ctx, work, options)
	if a := attemptOf(ctx); a != nil && err == nil {
		a.owner = created
	}
	return created, err
}
