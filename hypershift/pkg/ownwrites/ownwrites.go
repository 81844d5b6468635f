// Package ownwrites is a client that reads from a cache, but never an object that is older than what was last written through
// the client: such a read is refused as a conflict, and whoever asked comes back when the cache has caught up. A controller
// that writes nothing where all is as it should be, and is not woken by its own writes, needs this: deciding on an object older
// than its own last write it would find nothing to do, and nobody would wake it again. Only Get refuses; what List returns may
// be asked about with Current. After a restart nothing is remembered and nothing need be, for the cache begins with a list. Locked
// and NotStatusAlone are how such a controller writes, and what it is woken by.
package ownwrites

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

// CatchUp is how long a cache gets to catch up after a conflict, before the controller comes back.
const CatchUp = 15 * time.Millisecond

const (
	// keepFor bounds how long a write is remembered of an object that is not read again. No cache is behind for so long and
	// recovers without a new list.
	keepFor = 10 * time.Minute
	// longBehind is after what time a cache that is still behind is no explanation any more: a server that was restored from a
	// backup gives out versions again that are older than what was written.
	longBehind = 30 * time.Second
	// room is how many writes are remembered at least before old ones are looked for.
	room = 1024
)

// Client is a client.Client. Writes by Apply and DeleteAllOf are not remembered.
type Client struct {
	client.Client
	live client.Reader

	mu      sync.Mutex
	written map[types.UID]mark
	full    int // how many writes are remembered when old ones are looked for next
}

// mark is what is known of the last write to an object.
type mark struct {
	version string // the resourceVersion that the write gave it; empty if nobody knows whether it took place
	at      time.Time
}

// New returns a client that reads and writes through cached, and reads through live where it does not know whether a write
// took place.
func New(cached client.Client, live client.Reader) *Client {
	return &Client{Client: cached, live: live, written: map[types.UID]mark{}, full: room}
}

// errBehind says why a read is refused.
var errBehind = errors.New("the cache is behind what was last written")

// Get is the cache's, refused with a conflict while the cache is behind.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	return c.Current(ctx, object)
}

// Current is a conflict if an object that was read from the cache is older than what was last written through the client.
func (c *Client) Current(ctx context.Context, object client.Object) error {
	c.mu.Lock()
	last, known := c.written[object.GetUID()]
	c.mu.Unlock()
	if !known {
		return nil
	}
	isOlder := older(object.GetResourceVersion(), last.version)
	if last.version == "" || isOlder && time.Since(last.at) > longBehind {
		now := object.DeepCopyObject().(client.Object)
		err := c.live.Get(ctx, client.ObjectKeyFromObject(object), now)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading %T %s after a write that was not answered: %w", object, client.ObjectKeyFromObject(object), err)
		}
		if err != nil || now.GetUID() != object.GetUID() {
			c.replace(object.GetUID(), last, nil)
			return nil // it is gone, which the cache will say
		}
		learned := mark{version: now.GetResourceVersion(), at: time.Now()}
		c.replace(object.GetUID(), last, &learned)
		last, isOlder = learned, older(object.GetResourceVersion(), learned.version)
	}
	if isOlder {
		return apierrors.NewConflict(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, object.GetName(), errBehind)
	}
	c.replace(object.GetUID(), last, nil)
	return nil
}

// older compares the versions of one object; it is false of what cannot be compared.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// remember notes an object as the server answered it.
func (c *Client) remember(object client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Of two writes that were answered at the same time the newer one counts.
	if last, known := c.written[object.GetUID()]; !known || last.version == "" || older(last.version, object.GetResourceVersion()) {
		c.put(object.GetUID(), mark{version: object.GetResourceVersion(), at: time.Now()})
	}
}

// doubt notes that nobody knows whether a write to an object took place.
func (c *Client) doubt(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(uid, mark{at: time.Now()})
}

func (c *Client) put(uid types.UID, m mark) {
	if uid == "" {
		return
	}
	c.written[uid] = m
	if len(c.written) <= c.full {
		return
	}
	for uid, m := range c.written {
		if time.Since(m.at) > keepFor {
			delete(c.written, uid)
		}
	}
	c.full = max(room, 2*len(c.written))
}

// replace puts next, if any, where seen is, unless more was written meanwhile.
func (c *Client) replace(uid types.UID, seen mark, next *mark) {
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

// wrote notes how a write ended. uid is the object's from before it, for the answer may be empty.
func (c *Client) wrote(uid types.UID, object client.Object, err error) error {
	switch {
	case err == nil:
		c.remember(object)
	case !refused(err):
		c.doubt(uid)
	}
	return err
}

// refused says whether a write surely did not take place: the server said so.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return c.wrote("", object, c.Client.Create(ctx, object, opts...))
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	uid := object.GetUID()
	return c.wrote(uid, object, c.Client.Update(ctx, object, opts...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	uid := object.GetUID()
	return c.wrote(uid, object, c.Client.Patch(ctx, object, patch, opts...))
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.Client.
func (c *Client) SubResource(name string) client.SubResourceClient {
	return subResource{c.Client.SubResource(name), c}
}

// subResource remembers the object whose part is written.
type subResource struct {
	client.SubResourceClient
	c *Client
}

// Update implements client.SubResourceWriter.
func (s subResource) Update(ctx context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	uid := object.GetUID()
	return s.c.wrote(uid, object, s.SubResourceClient.Update(ctx, object, opts...))
}

// Patch implements client.SubResourceWriter.
func (s subResource) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	uid := object.GetUID()
	return s.c.wrote(uid, object, s.SubResourceClient.Patch(ctx, object, patch, opts...))
}
