package hostedclient

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// watchRetryDelay is the pause after a failed watch.
	watchRetryDelay = time.Second
	// connectRetryDelay is the pause before readers of a hosted cluster that could not be reached are notified. Its
	// kubeconfig was just written and is not in the cache yet, or is about to be written.
	connectRetryDelay = watchRetryDelay / 10
)

// Resource defines a watched kind. S is the state of one hosted cluster that is derived from its objects.
type Resource[S any] struct {
	// Plural names the kind in logs.
	Plural string
	// UserAgent is the user agent of the requests.
	UserAgent string
	// NewState returns the state without objects.
	NewState func() S
	// NewInformer creates the informer of a hosted cluster, after it has created prerequisites in it.
	NewInformer func(ctx context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error)
	// Add applies an object that exists to the state, Remove one that was deleted. Both report whether readers have to
	// be notified. They must not block.
	Add, Remove func(state S, object any) (changed bool)
}

// Watcher watches the objects of one kind inside many hosted clusters. It runs one informer per hosted cluster, from the
// first read until Forget, manages the connections, and notifies readers that have to read again. It is safe for
// concurrent use.
type Watcher[S any] struct {
	resource Resource[S]
	connect  Connect
	changed  func(controlPlane string)
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster[S]
	// retrying holds the hosted clusters that could not be reached and of which readers are notified soon.
	retrying map[string]bool
}

type cluster[S any] struct {
	config *rest.Config
	stop   context.CancelFunc
	// synced is true once all objects have been listed.
	synced bool
	state  S
}

// NewWatcher returns a Watcher without hosted clusters. changed is called with a control-plane namespace when its state
// changed, and when a read that failed should be retried. The caller must call Close.
func NewWatcher[S any](kind Resource[S], connect Connect, changed func(controlPlane string), log *slog.Logger) *Watcher[S] {
	ctx, cancel := context.WithCancel(context.Background())
	return &Watcher[S]{resource: kind, connect: connect, changed: changed, log: log, ctx: ctx, cancel: cancel,
		clusters: map[string]*cluster[S]{}, retrying: map[string]bool{}}
}

// Close stops all informers and waits for them.
func (w *Watcher[S]) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
}

// Read calls read with the state of a hosted cluster, starts to watch it if necessary, and reports whether the state is
// complete. While the hosted cluster cannot be reached, Read returns false without calling read.
func (w *Watcher[S]) Read(ctx context.Context, controlPlane string, read func(state S)) (complete bool) {
	config, err := w.connect(ctx, controlPlane)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.log.Debug("hosted cluster cannot be reached yet", logkey.ControlPlane, controlPlane, logkey.Error, err)
		w.scheduleRetry(controlPlane)
		return false
	}
	c := w.clusters[controlPlane]
	if c != nil && !Equal(c.config, config) {
		c.stop()
		c = nil
	}
	if c == nil {
		watching, stop := context.WithCancel(w.ctx)
		c = &cluster[S]{config: config, stop: stop, state: w.resource.NewState()}
		w.clusters[controlPlane] = c
		w.wg.Go(func() { w.run(watching, controlPlane, c, rest.CopyConfig(config)) })
	}
	read(c.state)
	return c.synced
}

// scheduleRetry notifies readers of a control plane once, after connectRetryDelay. The caller holds the lock.
func (w *Watcher[S]) scheduleRetry(controlPlane string) {
	if w.retrying[controlPlane] {
		return
	}
	w.retrying[controlPlane] = true
	w.wg.Go(func() {
		select {
		case <-w.ctx.Done():
			return
		case <-time.After(connectRetryDelay):
		}
		w.mu.Lock()
		delete(w.retrying, controlPlane)
		w.mu.Unlock()
		w.changed(controlPlane)
	})
}

// Forget stops the informer of a hosted cluster that is about to be deleted, or that has no more readers.
func (w *Watcher[S]) Forget(controlPlane string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clusters[controlPlane]; c != nil {
		c.stop()
		delete(w.clusters, controlPlane)
	}
}

func (w *Watcher[S]) run(ctx context.Context, controlPlane string, c *cluster[S], config *rest.Config) {
	config.QPS, config.Burst = -1, 0
	config.UserAgent = w.resource.UserAgent
	for ctx.Err() == nil {
		if err := w.watch(ctx, controlPlane, c, config); err != nil && ctx.Err() == nil {
			w.log.Warn("watching objects of a hosted cluster failed; retrying", logkey.Kind, w.resource.Plural, logkey.ControlPlane, controlPlane, logkey.Error, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetryDelay):
		}
	}
}

// watch runs the informer until ctx ends. The informer itself repeats failed lists and watches.
func (w *Watcher[S]) watch(ctx context.Context, controlPlane string, c *cluster[S], config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	informer, err := w.resource.NewInformer(ctx, client)
	if err != nil {
		return err
	}
	handle := func(apply func(S, any) bool) func(any) {
		return func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			w.mu.Lock()
			// Readers are notified of the objects of the first list when it is complete.
			notify := apply(c.state, object) && c.synced
			w.mu.Unlock()
			if notify {
				w.changed(controlPlane)
			}
		}
	}
	add := handle(w.resource.Add)
	handlers, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: handle(w.resource.Remove)})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	// The informer's own HasSynced does not wait for the handlers.
	if cache.WaitForCacheSync(ctx.Done(), handlers.HasSynced) {
		w.mu.Lock()
		c.synced = true
		w.mu.Unlock()
		w.changed(controlPlane)
	}
	<-ctx.Done()
	return nil
}
