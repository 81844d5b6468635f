package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions/work/v1"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// nudgedInformer is the informer of AppliedManifestWorks, which can also be told to look at one of them again. The
// controller that waits for a deleted work's objects to go asks for them with growing pauses, up to a minute; told by
// their watch that one has gone, it looks at once.
type nudgedInformer struct {
	workinformers.AppliedManifestWorkInformer
	shared *nudgedShared
}

type nudgedShared struct {
	cache.SharedIndexInformer
	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
}

func newNudgedInformer(informer workinformers.AppliedManifestWorkInformer) nudgedInformer {
	return nudgedInformer{AppliedManifestWorkInformer: informer, shared: &nudgedShared{SharedIndexInformer: informer.Informer()}}
}

func (n nudgedInformer) Informer() cache.SharedIndexInformer { return n.shared }

func (n nudgedInformer) Lister() worklisters.AppliedManifestWorkLister {
	return worklisters.NewAppliedManifestWorkLister(n.shared.GetIndexer())
}

func (n *nudgedShared) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	n.mu.Lock()
	n.handlers = append(n.handlers, handler)
	n.mu.Unlock()
	return n.SharedIndexInformer.AddEventHandler(handler)
}

// nudge makes the controllers look at AppliedManifestWorks that are being deleted.
func (n nudgedInformer) nudge(names []string) {
	n.shared.mu.Lock()
	handlers := n.shared.handlers
	n.shared.mu.Unlock()
	for _, name := range names {
		applied, err := n.Lister().Get(name)
		if err != nil || applied.DeletionTimestamp.IsZero() {
			continue
		}
		for _, handler := range handlers {
			handler.OnUpdate(applied, applied)
		}
	}
}

// nudgeOften looks after the AppliedManifestWorks being deleted whose objects are of kinds that nobody watches: each is
// looked at again after a quarter of the time its deletion has taken so far, and every ten seconds at the latest. Those
// whose objects are all watched need it only in case that something was missed: hundreds that wait for their namespaces
// would have the API server answer little else.
func (n nudgedInformer) nudgeOften(ctx context.Context, watched func([]workv1.AppliedManifestResourceMeta) bool) {
	const shortest, longest, watchedPause = 500 * time.Millisecond, 10 * time.Second, time.Minute
	ticker := time.NewTicker(shortest)
	defer ticker.Stop()
	due := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			deleting := map[string]bool{}
			for _, object := range n.shared.GetStore().List() {
				applied, ok := object.(*workv1.AppliedManifestWork)
				if !ok || applied.DeletionTimestamp.IsZero() {
					continue
				}
				name := applied.Name
				deleting[name] = true
				age := now.Sub(applied.DeletionTimestamp.Time)
				at, known := due[name]
				if known && now.After(at) {
					n.nudge([]string{name})
				}
				if known && !now.After(at) {
					continue
				}
				pause := min(max(age/4, shortest), longest)
				if watched(applied.Status.AppliedResources) {
					pause = watchedPause
				}
				due[name] = now.Add(pause)
			}
			for name := range due {
				if !deleting[name] {
					delete(due, name)
				}
			}
		}
	}
}
