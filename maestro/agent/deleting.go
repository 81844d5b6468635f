package agent

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// deletionRecheck is the age after which an object that is being deleted is read again although no watch has reported its end.
const deletionRecheck = time.Minute

// awaitedDeletion is an object that is being deleted.
type awaitedDeletion struct {
	object *unstructured.Unstructured // its metadata; nil until it was read
	read   time.Time
}

// deletingClient makes the client of the management cluster for the controller that deletes the objects of an AppliedManifestWork. The controller
// polls each object with growing pauses until it is gone. The client answers from memory for an object that is being deleted, until the watch of
// its kind reports the end of the deletion and triggers the controller.
type deletingClient struct {
	applied *applied
	// failed contains the objects whose last request failed, as keys of type objectKey.
	failed sync.Map
}

// over returns the client, which sends its requests with another one.
func (c *deletingClient) over(to dynamic.Interface) dynamic.Interface {
	return wrappedClient{to, func(objects dynamic.ResourceInterface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
		return deletingObjects{objects, c, gvr, namespace}
	}}
}

// deletingObjects are the objects of a resource in a namespace.
type deletingObjects struct {
	dynamic.ResourceInterface
	client    *deletingClient
	gvr       schema.GroupVersionResource
	namespace string
}

// Get implements dynamic.ResourceInterface.
func (o deletingObjects) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	object, err := o.client.applied.readDeleting(o.gvr, key(o.namespace, name), func() (*unstructured.Unstructured, error) {
		return o.ResourceInterface.Get(ctx, name, options, subresources...)
	})
	return object, o.observe(name, err)
}

// Delete implements dynamic.ResourceInterface.
func (o deletingObjects) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	return o.observe(name, o.ResourceInterface.Delete(ctx, name, options, subresources...))
}

// Patch implements dynamic.ResourceInterface.
func (o deletingObjects) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
	patched, err := o.ResourceInterface.Patch(ctx, name, kind, data, options, subresources...)
	o.client.applied.forgetDeletion(o.gvr, key(o.namespace, name))
	return patched, o.observe(name, err)
}

// observe stores whether a request failed, and returns its error.
func (o deletingObjects) observe(name string, err error) error {
	object := objectKey{o.gvr.GroupResource(), o.namespace, name}
	if err == nil || apierrors.IsNotFound(err) {
		o.client.failed.Delete(object)
	} else {
		o.client.failed.Store(object, struct{}{})
	}
	return err
}

// readDeleting returns the result of get. If the object is being deleted, it returns the metadata that it read last until the watch of its kind
// reports that the object is gone, and calls get again after deletionRecheck.
func (a *applied) readDeleting(gvr schema.GroupVersionResource, id string, get func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	for {
		cached, awaited := a.awaitDeletion(gvr, id)
		if cached != nil {
			return cached, nil
		}
		object, err := get()
		if !awaited || err != nil || object.GetDeletionTimestamp() == nil {
			a.forgetDeletion(gvr, id)
			return object, err
		}
		if a.storeDeletion(gvr, id, object) {
			return object, nil
		}
		// The watch has reported the end of the object while it was read.
	}
}

// awaitDeletion returns the object with the given key if it is being deleted and was read within deletionRecheck. Otherwise it adds an entry that
// exists until the watch reports the end of the object, and reports whether the kind of the object is watched.
func (a *applied) awaitDeletion(gvr schema.GroupVersionResource, id string) (cached *unstructured.Unstructured, awaited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.watches(gvr) {
		return nil, false
	}
	d := a.deletions[gvr][id]
	switch {
	case d != nil && d.object != nil && a.now().Sub(d.read) < deletionRecheck:
		return d.object, true
	case a.deletions[gvr] == nil:
		a.deletions[gvr] = map[string]*awaitedDeletion{id: {}}
	case d == nil:
		a.deletions[gvr][id] = &awaitedDeletion{}
	}
	return nil, true
}

// storeDeletion stores the metadata of an object in its entry, and reports whether the entry still exists.
func (a *applied) storeDeletion(gvr schema.GroupVersionResource, id string, object *unstructured.Unstructured) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.deletions[gvr][id]
	if d == nil {
		return false
	}
	d.object = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.Object["apiVersion"], "kind": object.Object["kind"], "metadata": object.Object["metadata"]}}
	d.read = a.now()
	return true
}

// forgetDeletion removes an entry.
func (a *applied) forgetDeletion(gvr schema.GroupVersionResource, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.deletions[gvr], id)
}
