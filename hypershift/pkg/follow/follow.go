// Package follow follows the objects of a kind inside hosted clusters: one informer per hosted cluster, from when somebody
// first asks for what is known of it until it is forgotten. What is kept of the objects is the Kind's; a Follower sees to
// the connections, and that whoever asked too early is told when to ask again.
package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// retry is how long a hosted cluster whose objects could not be followed is left alone.
	retry = time.Second
	// connectRetry is after what time somebody who asked for a hosted cluster that cannot be reached yet is told to ask again:
	// its kubeconfig was written a moment ago and is not seen yet, or is about to be written.
	connectRetry = retry / 10
)

// Connect returns how to reach a hosted cluster, named by its control-plane namespace, as its administrator.
type Connect func(ctx context.Context, controlPlane string) (*rest.Config, error)

// Kind is what is followed. S is what is kept of one hosted cluster's objects.
type Kind[S any] struct {
	// Plural names the objects in the log.
	Plural string
	// UserAgent is who watches, as the hosted cluster sees it.
	UserAgent string
	// New is what is kept while there are no objects.
	New func() S
	// Informer makes the informer of a hosted cluster, and first whatever has to be there.
	Informer func(ctx context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error)
	// Learn takes an object that is there, Unlearn one that is not any more; both say whether something changed for those
	// who ask. They must not block.
	Learn, Unlearn func(kept S, object any) (changed bool)
}

// Follower follows the objects of many hosted clusters.
type Follower[S any] struct {
	kind    Kind[S]
	connect Connect
	changed func(controlPlane string)
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster[S]
	// awaited are the hosted clusters that could not be reached, and that somebody is to be told of.
	awaited map[string]bool
}

type cluster[S any] struct {
	host string
	stop context.CancelFunc
	// known says that all objects have been listed.
	known bool
	kept  S
}

// New returns a follower of nothing. changed is called with a control plane of whose objects something else is known now,
// and when it is worth asking again. Close must be called.
func New[S any](kind Kind[S], connect Connect, changed func(controlPlane string), log *slog.Logger) *Follower[S] {
	ctx, cancel := context.WithCancel(context.Background())
	return &Follower[S]{kind: kind, connect: connect, changed: changed, log: log, ctx: ctx, cancel: cancel,
		clusters: map[string]*cluster[S]{}, awaited: map[string]bool{}}
}

// Close ends all informers and waits for them.
func (f *Follower[S]) Close() {
	f.mu.Lock()
	f.cancel()
	f.mu.Unlock()
	f.wg.Wait()
}

// Look has look read what is kept of a hosted cluster, which is followed from now on, and says whether that is all. Look is
// not called, and nothing known, while the hosted cluster cannot be reached.
func (f *Follower[S]) Look(ctx context.Context, controlPlane string, look func(kept S)) (known bool) {
	config, err := f.connect(ctx, controlPlane)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	if err != nil {
		f.log.Debug("a hosted cluster cannot be reached yet", "controlPlane", controlPlane, "error", err)
		f.askAgain(controlPlane)
		return false
	}
	c := f.clusters[controlPlane]
	if c != nil && c.host != config.Host {
		c.stop()
		c = nil
	}
	if c == nil {
		following, stop := context.WithCancel(f.ctx)
		c = &cluster[S]{host: config.Host, stop: stop, kept: f.kind.New()}
		f.clusters[controlPlane] = c
		f.wg.Go(func() { f.follow(following, controlPlane, c, rest.CopyConfig(config)) })
	}
	look(c.kept)
	return c.known
}

// askAgain has a control plane looked at again soon, once; the lock is held.
func (f *Follower[S]) askAgain(controlPlane string) {
	if f.awaited[controlPlane] {
		return
	}
	f.awaited[controlPlane] = true
	f.wg.Go(func() {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(connectRetry):
		}
		f.mu.Lock()
		delete(f.awaited, controlPlane)
		f.mu.Unlock()
		f.changed(controlPlane)
	})
}

// Forget ends the informer of a hosted cluster that is about to go away, or that nobody asks for any more.
func (f *Follower[S]) Forget(controlPlane string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clusters[controlPlane]; c != nil {
		c.stop()
		delete(f.clusters, controlPlane)
	}
}

func (f *Follower[S]) follow(ctx context.Context, controlPlane string, c *cluster[S], config *rest.Config) {
	config.QPS, config.Burst = -1, 0
	config.UserAgent = f.kind.UserAgent
	for ctx.Err() == nil {
		if err := f.watch(ctx, controlPlane, c, config); err != nil && ctx.Err() == nil {
			f.log.Warn("a hosted cluster's "+f.kind.Plural+" could not be followed", "controlPlane", controlPlane, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// watch follows until ctx is over; the informer lists and watches again by itself.
func (f *Follower[S]) watch(ctx context.Context, controlPlane string, c *cluster[S], config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	informer, err := f.kind.Informer(ctx, client)
	if err != nil {
		return err
	}
	take := func(learn func(S, any) bool) func(any) {
		return func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			f.mu.Lock()
			// What comes before the list is whole is told of when it is.
			tell := learn(c.kept, object) && c.known
			f.mu.Unlock()
			if tell {
				f.changed(controlPlane)
			}
		}
	}
	learn := take(f.kind.Learn)
	handlers, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: learn, UpdateFunc: func(_, object any) { learn(object) }, DeleteFunc: take(f.kind.Unlearn)})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	// Not the informer's own HasSynced: the handlers may not have seen yet what it has listed.
	if cache.WaitForCacheSync(ctx.Done(), handlers.HasSynced) {
		f.mu.Lock()
		c.known = true
		f.mu.Unlock()
		f.changed(controlPlane)
	}
	<-ctx.Done()
	return nil
}
