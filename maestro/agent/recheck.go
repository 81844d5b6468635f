package agent

import (
	"sync"

	"k8s.io/client-go/tools/cache"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions/work/v1"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
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
