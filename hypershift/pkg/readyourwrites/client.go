// Package readyourwrites provides a client that reads from a cache but never returns an object that is older than the
// last write through the client. Such a read fails with a conflict, and the caller retries when the cache has caught
// up.
//
// A controller needs this if it writes only differences and ignores the events of its own writes. Deciding on an object
// that is older than its own last write, it would find nothing to do, and no event would start another pass.
//
// Only Get checks automatically; CheckCurrent checks objects that List returned. Nothing is stored across a restart,
// because a new cache begins with a list. LockedPatch and IgnoreStatusUpdates are the patch and the event filter for
// such controllers.
package readyourwrites

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RetryDelay is the pause after a conflict, in which the cache can catch up.
const RetryDelay = 15 * time.Millisecond

const (
	// retention bounds how long the last write of an object is stored if the object is not read again. No cache stays
	// behind for so long and recovers without a new list.
	retention = 10 * time.Minute
	// maxCacheLag is the time after which a missing write is no longer explained by a slow cache, so the client reads
	// past it. A server that was restored from a backup assigns versions again that are older than the last write.
	maxCacheLag = 30 * time.Second
	// minSweep is the smallest number of stored writes at which expired ones are removed.
	minSweep = 1024
)

// Client is a client.Client. It does not track writes by Apply and DeleteAllOf. It is safe for concurrent use.
type Client struct {
	client.Client
	live client.Reader

	mu      sync.Mutex
	written map[types.UID]lastWrite
	sweepAt int // number of stored writes at which expired ones are removed next
}

// lastWrite describes the last write to an object.
type lastWrite struct {
	version string // the resourceVersion after the write; empty if it is unknown whether the write happened
	at      time.Time
}

// New returns a client that reads and writes through cached. It reads through live if it does not know whether a write
// happened.
func New(cached client.Client, live client.Reader) *Client {
	return &Client{Client: cached, live: live, written: map[types.UID]lastWrite{}, sweepAt: minSweep}
}

// errStaleCache is the cause of a rejected read.
var errStaleCache = errors.New("the cache is older than the last write")

// Get reads from the cache. It returns a conflict while the cache is older than the last write.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	return c.CheckCurrent(ctx, object)
}

// CheckCurrent returns a conflict if an object that was read from the cache is older than the last write through the
// client.
func (c *Client) CheckCurrent(ctx context.Context, object client.Object) error {
	c.mu.Lock()
	last, known := c.written[object.GetUID()]
	c.mu.Unlock()
	if !known {
		return nil
	}
	behind := isOlder(object.GetResourceVersion(), last.version)
	if last.version == "" || behind && time.Since(last.at) > maxCacheLag {
		now := object.DeepCopyObject().(client.Object)
		err := c.live.Get(ctx, client.ObjectKeyFromObject(object), now)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading %T %s after a write without a response: %w", object, client.ObjectKeyFromObject(object), err)
		}
		if err != nil || now.GetUID() != object.GetUID() {
			c.replace(object.GetUID(), last, nil)
			return nil // deleted, which the cache is going to show
		}
		current := lastWrite{version: now.GetResourceVersion(), at: time.Now()}
		c.replace(object.GetUID(), last, &current)
		last, behind = current, isOlder(object.GetResourceVersion(), current.version)
	}
	if behind {
		return apierrors.NewConflict(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, object.GetName(), errStaleCache)
	}
	c.replace(object.GetUID(), last, nil)
	return nil
}

// isOlder reports whether a version of an object is older than another version of it. It returns false if the versions
// cannot be compared.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// recordWrite stores the version of an object that the server returned.
func (c *Client) recordWrite(object client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of two writes that finish at the same time the newer one counts.
	if last, known := c.written[object.GetUID()]; !known || last.version == "" || isOlder(last.version, object.GetResourceVersion()) {
		c.store(object.GetUID(), lastWrite{version: object.GetResourceVersion(), at: time.Now()})
	}
}

// recordUnknown stores that it is unknown whether a write to an object happened.
func (c *Client) recordUnknown(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(uid, lastWrite{at: time.Now()})
}

func (c *Client) store(uid types.UID, m lastWrite) {
	if uid == "" {
		return
	}
	c.written[uid] = m
	if len(c.written) <= c.sweepAt {
		return
	}
	for uid, m := range c.written {
		if time.Since(m.at) > retention {
			delete(c.written, uid)
		}
	}
	c.sweepAt = max(minSweep, 2*len(c.written))
}

// replace replaces the stored write seen by next, or removes it if next is nil. It does nothing if another write was
// stored since.
func (c *Client) replace(uid types.UID, seen lastWrite, next *lastWrite) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.written[uid] != seen:
	case next != nil:
		c.written[uid] = *next
	default:
		delete(c.written, uid)
	}
}

// observe stores the outcome of a write. uid is the object's UID before the write, because the response may be empty.
func (c *Client) observe(uid types.UID, object client.Object, err error) error {
	switch {
	case err == nil:
		c.recordWrite(object)
	case !rejected(err):
		c.recordUnknown(uid)
	}
	return err
}

// rejected reports whether the server rejected a write, so that it certainly did not happen.
func rejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return c.observe("", object, c.Client.Create(ctx, object, opts...))
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	uid := object.GetUID()
	return c.observe(uid, object, c.Client.Update(ctx, object, opts...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	uid := object.GetUID()
	return c.observe(uid, object, c.Client.Patch(ctx, object, patch, opts...))
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.Client.
func (c *Client) SubResource(name string) client.SubResourceClient {
	return subResource{c.Client.SubResource(name), c}
}

// subResource records writes to a subresource of an object.
type subResource struct {
	client.SubResourceClient
	c *Client
}

// Update implements client.SubResourceWriter.
func (s subResource) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	uid := object.GetUID()
	return s.c.observe(uid, object, s.SubResourceClient.Update(ctx, object, opts...))
}

// Patch implements client.SubResourceWriter.
func (s subResource) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	uid := object.GetUID()
	return s.c.observe(uid, object, s.SubResourceClient.Patch(ctx, object, patch, opts...))
}
