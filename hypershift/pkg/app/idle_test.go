package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// observedControllers are the names of the controllers of a runtime.
var observedControllers = []string{"hostedcluster", "nodepool", "break-glass-signer", "break-glass-request", "break-glass-revocation", "break-glass-audit"}

// renewal is the least time after which a controller reads an object again although nothing happened, to renew a certificate. Every shorter time is
// the pause before a retry.
const renewal = time.Hour

// observer observes which versions of objects the controllers of a runtime have read, and which requests they have handled.
type observer struct {
	scheme *runtime.Scheme

	mu       sync.Mutex
	queues   map[string]*observedQueue // by controller
	handlers []*observedHandler
}

func newObserver(scheme *runtime.Scheme) *observer {
	return &observer{scheme: scheme, queues: map[string]*observedQueue{}}
}

// checkIdle returns nil if the controllers have read all objects of their kinds in their current versions, and have handled all requests. Objects
// that change meanwhile may have been read in earlier versions.
func (o *observer) checkIdle(ctx context.Context, live client.Reader) error {
	if err := o.checkQueues(); err != nil {
		return err
	}
	o.mu.Lock()
	handlers := slices.Clone(o.handlers)
	o.mu.Unlock()
	current := map[schema.GroupVersionKind]map[string]string{}
	for _, h := range handlers {
		if _, listed := current[h.kind]; !listed {
			versions, err := listVersions(ctx, live, h.kind)
			if err != nil {
				return err
			}
			current[h.kind] = versions
		}
	}
	for _, h := range handlers {
		if !h.hasRead(current[h.kind]) {
			return fmt.Errorf("a controller has not read all changes of kind %s", h.kind.Kind)
		}
	}
	return o.checkQueues() // what was read has added requests
}

// listVersions returns the versions of all objects of a kind, by namespace/name.
func listVersions(ctx context.Context, live client.Reader, kind schema.GroupVersionKind) (map[string]string, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the versions of kind %s: %w", kind.Kind, err)
	}
	versions := map[string]string{}
	for i := range list.Items {
		versions[objectKey(&list.Items[i])] = list.Items[i].ResourceVersion
	}
	return versions, nil
}

func (o *observer) checkQueues() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range observedControllers {
		queue, created := o.queues[name]
		if !created {
			return fmt.Errorf("controller %s has not started", name)
		}
		if err := queue.check(); err != nil {
			return fmt.Errorf("controller %s %w", name, err)
		}
	}
	return nil
}

// newQueue implements readyourwrites.NewQueue.
func (o *observer) newQueue(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	if !slices.Contains(observedControllers, controller) {
		panic("controller " + controller + " is not in observedControllers")
	}
	q := &observedQueue{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(limiter), requests: map[reconcile.Request]handling{}}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queues[controller] = q
	return q
}

// observedQueue is a queue that counts how often each request was added, and how many of these additions were handled.
type observedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu       sync.Mutex
	working  bool // the controller has read its caches and handles requests
	requests map[reconcile.Request]handling
}

// handling is the number of additions of a request, of those before the current or last pass began, and of those before a pass that has ended.
type handling struct{ added, begun, ended int }

func (q *observedQueue) check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.working {
		return fmt.Errorf("does not handle requests yet")
	}
	for request, h := range q.requests {
		if h.ended < h.added {
			return fmt.Errorf("has not handled %s", request)
		}
	}
	return nil
}

func (q *observedQueue) change(request reconcile.Request, change func(*handling)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.requests[request]
	change(&h)
	q.requests[request] = h
}

func (q *observedQueue) added(request reconcile.Request) {
	q.change(request, func(h *handling) { h.added++ })
}

// Add implements workqueue.TypedInterface.
func (q *observedQueue) Add(request reconcile.Request) {
	q.added(request)
	q.TypedRateLimitingInterface.Add(request)
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *observedQueue) AddAfter(request reconcile.Request, after time.Duration) {
	if after < renewal {
		q.added(request)
	}
	q.TypedRateLimitingInterface.AddAfter(request, after)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *observedQueue) AddRateLimited(request reconcile.Request) {
	q.added(request)
	q.TypedRateLimitingInterface.AddRateLimited(request)
}

// Get implements workqueue.TypedInterface.
func (q *observedQueue) Get() (reconcile.Request, bool) {
	q.mu.Lock()
	q.working = true
	q.mu.Unlock()
	request, shutdown := q.TypedRateLimitingInterface.Get()
	if !shutdown {
		q.change(request, func(h *handling) { h.begun = h.added })
	}
	return request, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *observedQueue) Done(request reconcile.Request) {
	q.change(request, func(h *handling) { h.ended = h.begun })
	q.TypedRateLimitingInterface.Done(request)
}

// newCache implements cache.NewCacheFunc.
func (o *observer) newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	c, err := cache.New(config, options)
	return observedCache{c, o}, err
}

// observedCache is a cache that observes the handlers of its informers.
type observedCache struct {
	cache.Cache
	observer *observer
}

// GetInformer implements cache.Informers.
func (c observedCache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, object, options...)
	if err != nil {
		return nil, err
	}
	kind, err := apiutil.GVKForObject(object, c.observer.scheme)
	return observedInformer{informer, c.observer, kind}, err
}

type observedInformer struct {
	cache.Informer
	observer *observer
	kind     schema.GroupVersionKind
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i observedInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	h := &observedHandler{handler: handler, kind: i.kind, versions: map[string]string{}}
	i.observer.mu.Lock()
	i.observer.handlers = append(i.observer.handlers, h)
	i.observer.mu.Unlock()
	return i.Informer.AddEventHandlerWithOptions(h, options)
}

// observedHandler stores the versions of the objects of which its handler was notified. The handler adds the requests before it returns.
type observedHandler struct {
	handler toolscache.ResourceEventHandler
	kind    schema.GroupVersionKind

	mu       sync.Mutex
	versions map[string]string // by namespace/name
}

func (h *observedHandler) hasRead(versions map[string]string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Equal(h.versions, versions)
}

func (h *observedHandler) store(object any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[objectKey(object)] = object.(client.Object).GetResourceVersion()
}

// OnAdd implements cache.ResourceEventHandler.
func (h *observedHandler) OnAdd(object any, initial bool) {
	h.handler.OnAdd(object, initial)
	h.store(object)
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *observedHandler) OnUpdate(before, after any) {
	h.handler.OnUpdate(before, after)
	h.store(after)
}

// OnDelete implements cache.ResourceEventHandler.
func (h *observedHandler) OnDelete(object any) {
	h.handler.OnDelete(object)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.versions, objectKey(object))
}

// objectKey returns namespace/name of an object, or of a deleted one.
func objectKey(object any) string {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err)
	}
	return key
}
