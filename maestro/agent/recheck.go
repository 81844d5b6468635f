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

// recheckInformer is an informer of AppliedManifestWorks that can trigger the reconciliation of one of them. The controller that
// deletes the objects of a work polls them with pauses of up to a minute; a recheck makes it continue as soon as the watch of an
// object reports its deletion.
type recheckInformer struct {
	workinformers.AppliedManifestWorkInformer
	shared *sharedRecheckInformer
}

type sharedRecheckInformer struct {
	cache.SharedIndexInformer
	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
}

func newRecheckInformer(informer workinformers.AppliedManifestWorkInformer) recheckInformer {
	return recheckInformer{AppliedManifestWorkInformer: informer, shared: &sharedRecheckInformer{SharedIndexInformer: informer.Informer()}}
}

func (n recheckInformer) Informer() cache.SharedIndexInformer { return n.shared }

func (n recheckInformer) Lister() worklisters.AppliedManifestWorkLister {
	return worklisters.NewAppliedManifestWorkLister(n.shared.GetIndexer())
}

func (n *sharedRecheckInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	n.mu.Lock()
	n.handlers = append(n.handlers, handler)
	n.mu.Unlock()
	return n.SharedIndexInformer.AddEventHandler(handler)
}

// recheck triggers the reconciliation of those AppliedManifestWorks that are being deleted.
func (n recheckInformer) recheck(names []string) {
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

// recheckPeriodically rechecks AppliedManifestWorks that are being deleted: after a quarter of the duration of the deletion so far,
// and at least every ten seconds. If all their objects are watched, it rechecks every minute, in case that an event was missed:
// the reconciliation of hundreds of works that wait for namespaces would overload the API server.
func (n recheckInformer) recheckPeriodically(ctx context.Context, watched func([]workv1.AppliedManifestResourceMeta) bool) {
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
					n.recheck([]string{name})
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
