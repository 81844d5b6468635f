package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// confirmingClient is the client of the controller that deletes the objects of an AppliedManifestWork. The controller removes an object
// from the list also if it could not read or delete it, for example because the API server has just started and does not have its roles
// yet. The list would become empty, and the work would be reported as deleted although the object exists.
//
// The client reads each object that a patch removes from the list if the last request for it failed. It returns an error while the
// AppliedManifestWork owns the object, and the controller tries again.
type confirmingClient struct {
	workv1client.AppliedManifestWorkInterface
	finalizer *finalizer
	failed    *sync.Map // of a deletingClient
}

// Patch implements workv1client.AppliedManifestWorkInterface.
func (c confirmingClient) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*workv1.AppliedManifestWork, error) {
	if slices.Equal(subresources, []string{"status"}) {
		if err := c.confirmRemovals(ctx, name, data); err != nil {
			return nil, err
		}
	}
	return c.AppliedManifestWorkInterface.Patch(ctx, name, pt, data, opts, subresources...)
}

// confirmRemovals returns an error if an object whose last request failed, and that a merge patch removes from the list, cannot be
// read, or exists and is owned.
func (c confirmingClient) confirmRemovals(ctx context.Context, name string, mergePatch []byte) error {
	var patch struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(mergePatch, &patch); err != nil {
		return fmt.Errorf("reading the patch of AppliedManifestWork %s: %w", name, err)
	}
	list, changed := patch.Status["appliedResources"]
	if !changed {
		return nil
	}
	var kept []workv1.AppliedManifestResourceMeta // a null removes all
	if err := json.Unmarshal(list, &kept); err != nil {
		return fmt.Errorf("reading the applied objects in the patch of AppliedManifestWork %s: %w", name, err)
	}
	applied, err := c.finalizer.lister.Get(name)
	if err != nil {
		return err
	}
	for i := range applied.Status.AppliedResources {
		removed := &applied.Status.AppliedResources[i]
		key := objectKey{schema.GroupResource{Group: removed.Group, Resource: removed.Resource}, removed.Namespace, removed.Name}
		if _, failed := c.failed.Load(key); !failed || slices.Contains(kept, *removed) {
			continue
		}
		object, err := c.finalizer.get(ctx, removed)
		if err != nil {
			return err
		}
		if object != nil && object.UID == removed.UID && owns(applied, object.owners) {
			return fmt.Errorf("AppliedManifestWork %s: %s %s/%s still exists", name, key.resource, removed.Namespace, removed.Name)
		}
		c.failed.Delete(key)
	}
	return nil
}
