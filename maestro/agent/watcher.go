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

// watcher is one watch of the works. What its reader has not fetched yet waits, one event per work at most, so that it
// never holds up whoever changes a work and never grows beyond the number of works.
type watcher struct {
	works  *works
	result chan watch.Event
	stop   chan struct{}
	more   chan struct{}

	mu      sync.Mutex
	waiting []watch.Event
	// at is where the waiting event of a work stands.
	at    map[string]int
	taken int
	once  sync.Once
}

func newWatcher(w *works) *watcher {
	return &watcher{works: w, result: make(chan watch.Event), stop: make(chan struct{}), more: make(chan struct{}, 1), at: map[string]int{}}
}

// begin starts to hand events out.
func (w *watcher) begin() { go w.run() }

func (w *watcher) run() {
	defer close(w.result)
	for {
		event, ok := w.next()
		if !ok {
			select {
			case <-w.stop:
				return
			case <-w.more:
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
	if len(w.waiting) == 0 {
		return watch.Event{}, false
	}
	event := w.waiting[0]
	w.waiting = w.waiting[1:]
	w.taken++
	name := event.Object.(*workv1.ManifestWork).Name
	if w.at[name] < w.taken {
		delete(w.at, name)
	}
	return event, true
}

func (w *watcher) add(event watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := event.Object.(*workv1.ManifestWork).Name
	if i, ok := w.at[name]; ok && event.Type == watch.Modified && w.waiting[i-w.taken].Type != watch.Deleted {
		w.waiting[i-w.taken].Object = event.Object
		return
	}
	w.at[name] = w.taken + len(w.waiting)
	w.waiting = append(w.waiting, event)
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// ResultChan is the watch's API.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop is the watch's API.
func (w *watcher) Stop() {
	w.works.mu.Lock()
	delete(w.works.watchers, w)
	w.works.mu.Unlock()
	w.end()
}

func (w *watcher) end() { w.once.Do(func() { close(w.stop) }) }

// workInformer is the informer the controllers share, over the works in memory.
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

// IsWatchListSemanticsUnSupported tells client-go to list and then watch.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }
