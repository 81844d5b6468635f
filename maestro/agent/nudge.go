package agent

import (
	"sync"

	"k8s.io/client-go/tools/cache"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions/work/v1"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
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
