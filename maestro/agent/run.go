package agent

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
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
	log    *slog.Logger
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
		queue.Forget(key)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) {
			r.log.Warn("sync failed; trying again", "controller", r.controller.Name(), "key", key, "error", err)
		}
		queue.AddRateLimited(key)
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
