package agent

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions/work/v1"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"context"

	"k8s.io/client-go/tools/cache"
)

// watcher is one watch of the works. Events that its reader has not received yet are queued, one modification per work at most,
// so that a slow reader neither blocks changes nor uses memory beyond the number of works.
type watcher struct {
	works  *works
	result chan watch.Event
	stop   chan struct{}
	wake   chan struct{}

	mu      sync.Mutex
	pending []watch.Event
	// positions contains the index of the queued event of each work, counted from the first event ever queued. removed is the
	// number of events that were removed from the queue.
	positions map[string]int
	removed   int
	once      sync.Once
}

func newWatcher(w *works) *watcher {
	return &watcher{works: w, result: make(chan watch.Event), stop: make(chan struct{}), wake: make(chan struct{}, 1), positions: map[string]int{}}
}

// begin starts to send events.
func (w *watcher) begin() { go w.run() }

func (w *watcher) run() {
	defer close(w.result)
	for {
		event, ok := w.next()
		if !ok {
			select {
			case <-w.stop:
				return
			case <-w.wake:
			}
			continue
		}
		select {
		case <-w.stop:
			return
		case w.result <- event:
		}
	}
}

func (w *watcher) next() (watch.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return watch.Event{}, false
	}
	event := w.pending[0]
	w.pending = w.pending[1:]
	w.removed++
	name := event.Object.(*workv1.ManifestWork).Name
	if w.positions[name] < w.removed {
		delete(w.positions, name)
	}
	return event, true
}

func (w *watcher) add(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := event.Object.(*workv1.ManifestWork).Name
	if i, ok := w.positions[name]; ok && event.Type == watch.Modified && w.pending[i-w.removed].Type != watch.Deleted {
		w.pending[i-w.removed].Object = event.Object
		return
	}
	w.positions[name] = w.removed + len(w.pending)
	w.pending = append(w.pending, event)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.works.mu.Lock()
	delete(w.works.watchers, w)
	w.works.mu.Unlock()
	w.end()
}

func (w *watcher) end() { w.once.Do(func() { close(w.stop) }) }

// workInformer is the shared informer of the works in memory.
type workInformer struct {
	informer cache.SharedIndexInformer
}

var _ workinformers.ManifestWorkInformer = workInformer{}

func newWorkInformer(w *works) workInformer {
	return workInformer{cache.NewSharedIndexInformer(listWatch{w}, &workv1.ManifestWork{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

func (i workInformer) Informer() cache.SharedIndexInformer { return i.informer }

func (i workInformer) Lister() worklisters.ManifestWorkLister {
	return worklisters.NewManifestWorkLister(i.informer.GetIndexer())
}

type listWatch struct{ works *works }

func (l listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.works.List(context.Background(), o)
}

func (l listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.works.Watch(context.Background(), o)
}

// IsWatchListSemanticsUnSupported makes client-go list before it watches.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }
