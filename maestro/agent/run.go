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
)

// runner runs a controller of the work agent with workers of our own, so that something can be done around each sync.
type runner struct {
	controller factory.Controller
	workers    int
	synced     []cache.InformerSynced
	// around decides about a sync; nil just syncs.
	around func(ctx context.Context, key string, sync func() error) error
	// backoff is the pause before a sync that failed is tried again.
	backoff workqueue.TypedRateLimiter[string]
	log     *slog.Logger
}

// newBackoff pauses up to a minute: whatever was the matter, an hour of it must not cost a quarter of one more.
func newBackoff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Minute)
}

// run works until the context ends, and returns once every worker has.
func (r runner) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return
	}
	queue := r.controller.SyncContext().Queue()
	var running sync.WaitGroup
	for range r.workers {
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				key, quit := queue.Get()
				if quit {
					return
				}
				r.process(ctx, key)
				queue.Done(key)
			}
		}()
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
}

func (r runner) process(ctx context.Context, key string) {
	queue := r.controller.SyncContext().Queue()
	do := func() error { return r.controller.Sync(ctx, r.controller.SyncContext(), key) }
	err := error(nil)
	if r.around == nil {
		err = do()
	} else {
		err = r.around(ctx, key, do)
	}
	switch {
	case err == nil:
		r.backoff.Forget(key)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) {
			r.log.Warn("sync failed; trying again", "controller", r.controller.Name(), "key", key, "error", err)
		}
		queue.AddAfter(key, r.backoff.When(key))
	}
}

// turns lets one controller at a time work on a work. Applying, reading status and finalizing then never see one
// another's half-done work: a work is never declared gone while something is still being applied for it.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn
}

type turn struct {
	sync.Mutex
	waiting int
}

func newTurns() *turns { return &turns{taken: map[string]*turn{}} }

// take waits for the work's turn and gives what ends it.
func (t *turns) take(work string) (end func()) {
	t.mu.Lock()
	mine := t.taken[work]
	if mine == nil {
		mine = &turn{}
		t.taken[work] = mine
	}
	mine.waiting++
	t.mu.Unlock()
	mine.Lock()
	return func() {
		mine.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.waiting--; mine.waiting == 0 {
			delete(t.taken, work)
		}
	}
}

// around gives each sync of a work its turn, after something that may fail or have the sync left out.
func (t *turns) around(before func(ctx context.Context, work string) (skip bool, err error)) func(context.Context, string, func() error) error {
	return func(ctx context.Context, work string, sync func() error) error {
		defer t.take(work)()
		if skip, err := before(ctx, work); skip || err != nil {
			return err
		}
		return sync()
	}
}

// freshLister lists the works as they are now, not as the informer has heard of them: a controller that reads its own
// last write works from the right status.
type freshLister struct{ works *works }

var _ worklisters.ManifestWorkNamespaceLister = freshLister{}

// Get is the lister's API.
func (l freshLister) Get(name string) (*workv1.ManifestWork, error) {
	l.works.mu.Lock()
	defer l.works.mu.Unlock()
	if work, ok := l.works.byName[name]; ok {
		return work, nil
	}
	return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
}

// List is the lister's API.
func (l freshLister) List(selector labels.Selector) ([]*workv1.ManifestWork, error) {
	var found []*workv1.ManifestWork
	for _, work := range l.works.held() {
		if selector.Matches(labels.Set(work.Labels)) {
			found = append(found, work)
		}
	}
	return found, nil
}

// applying tries a work whose manifests were not all applied again, with growing pauses. The work agent leaves some
// failures, as server-side apply conflicts, to its next resync.
func applying(around func(context.Context, string, func() error) error, lister freshLister, queue func() workqueue.TypedRateLimitingInterface[string]) func(context.Context, string, func() error) error {
	pauses := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 2*time.Minute)
	return func(ctx context.Context, name string, sync func() error) error {
		if err := around(ctx, name, sync); err != nil {
			return err
		}
		work, err := lister.Get(name)
		if err == nil && work.DeletionTimestamp.IsZero() && meta.IsStatusConditionFalse(work.Status.Conditions, workv1.WorkApplied) {
			queue().AddAfter(name, pauses.When(name))
			return nil
		}
		pauses.Forget(name)
		return nil
	}
}
