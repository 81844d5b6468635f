package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/sdk-go/pkg/basecontroller/factory"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/common"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// runner runs a controller of the work agent with its own workers, so that each sync can be wrapped.
type runner struct {
	controller factory.Controller
	workers    int
	synced     []cache.InformerSynced
	// wrap is called instead of each sync and may call it; nil syncs unconditionally.
	wrap func(ctx context.Context, key string, sync func() error) error
	// syncContext returns the context of one sync of a key; nil passes the context of the runner.
	syncContext func(ctx context.Context, key string) context.Context
	// backoff limits the rate of retries of a failed sync.
	backoff workqueue.TypedRateLimiter[string]
	log     *slog.Logger
}

// newBackoff bounds the pauses of retries by a minute, so that works recover soon after a long outage.
func newBackoff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute)
}

// run processes the queue of the controller until ctx ends and returns when all workers have stopped.
func (r runner) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return
	}
	queue := r.controller.SyncContext().Queue()
	var running sync.WaitGroup
	for range r.workers {
		running.Go(func() {
			for {
				key, quit := queue.Get()
				if quit {
					return
				}
				r.process(ctx, key)
				queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

func (r runner) process(ctx context.Context, key string) {
	queue := r.controller.SyncContext().Queue()
	if r.syncContext != nil {
		ctx = r.syncContext(ctx, key)
	}
	sync := func() error { return r.controller.Sync(ctx, r.controller.SyncContext(), key) }
	var err error
	if r.wrap == nil {
		err = sync()
	} else {
		err = r.wrap(ctx, key, sync)
	}
	switch {
	case err == nil:
		r.backoff.Forget(key)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) {
			r.log.WarnContext(ctx, "sync failed", logkey.Controller, r.controller.Name(), logkey.Key, key, logkey.Error, err)
		}
		queue.AddAfter(key, r.backoff.When(key))
	}
}

// workLocks lets one controller at a time process a work. Applying, reading the status and finalizing then never read each
// other's intermediate states: a work is never reported as deleted while one of its objects is being applied.
type workLocks struct {
	mu    sync.Mutex
	locks map[string]*workLock
}

type workLock struct {
	sync.Mutex
	users int
}

func newWorkLocks() *workLocks { return &workLocks{locks: map[string]*workLock{}} }

// lock waits for the lock of a work and returns the function that releases it.
func (t *workLocks) lock(work string) (unlock func()) {
	t.mu.Lock()
	l := t.locks[work]
	if l == nil {
		l = &workLock{}
		t.locks[work] = l
	}
	l.users++
	t.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(t.locks, work)
		}
	}
}

// guard returns a wrapper for runner.wrap. It locks the work and calls before, which may fail or skip the sync.
func (t *workLocks) guard(before func(ctx context.Context, work string) (skip bool, err error)) func(context.Context, string, func() error) error {
	return func(ctx context.Context, work string, sync func() error) error {
		defer t.lock(work)()
		if skip, err := before(ctx, work); skip || err != nil {
			return err
		}
		return sync()
	}
}

// freshLister lists the current works instead of those in the cache of the informer, so that a controller reads its own writes.
type freshLister struct{ works *works }

var _ worklisters.ManifestWorkNamespaceLister = freshLister{}

// Get implements worklisters.ManifestWorkNamespaceLister.
func (l freshLister) Get(name string) (*workv1.ManifestWork, error) {
	l.works.mu.Lock()
	defer l.works.mu.Unlock()
	if work, ok := l.works.byName[name]; ok {
		return work, nil
	}
	return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
}

// deletionKey is the key of a context value that exists if the context is for a work that is being deleted.
type deletionKey struct{}

// withDeletion returns a context for a work, which states whether the work is being deleted.
func (l freshLister) withDeletion(ctx context.Context, name string) context.Context {
	if work, err := l.Get(name); err != nil || work.DeletionTimestamp.IsZero() {
		return ctx
	}
	return context.WithValue(ctx, deletionKey{}, true)
}

// List implements worklisters.ManifestWorkNamespaceLister.
func (l freshLister) List(selector labels.Selector) ([]*workv1.ManifestWork, error) {
	var found []*workv1.ManifestWork
	for _, work := range l.works.list() {
		if selector.Matches(labels.Set(work.Labels)) {
			found = append(found, work)
		}
	}
	return found, nil
}

// retryApply returns a wrapper that also retries a work whose manifests were not all applied, with growing pauses. The work agent
// itself retries some failures, such as conflicts of server-side apply, only with its next resync.
func retryApply(around func(context.Context, string, func() error) error, lister freshLister, queue func() workqueue.TypedRateLimitingInterface[string]) func(context.Context, string, func() error) error {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 2*time.Minute)
	return func(ctx context.Context, name string, sync func() error) error {
		if err := around(ctx, name, sync); err != nil {
			return err
		}
		work, err := lister.Get(name)
		if err == nil && work.DeletionTimestamp.IsZero() && meta.IsStatusConditionFalse(work.Status.Conditions, workv1.WorkApplied) {
			queue().AddAfter(name, backoff.When(name))
			return nil
		}
		backoff.Forget(name)
		return nil
	}
}
