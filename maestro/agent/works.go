package agent

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	workv1client "open-cluster-management.io/api/client/work/clientset/versioned/typed/work/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/common"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/utils"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// tombstoneLife is how long a deleted work is remembered, so that an older event that arrives late does not bring it
// back. It only has to outlast messages on their way.
const tombstoneLife = 10 * time.Minute

// works are the ManifestWorks the agent has, in memory: what the server sent, and what the controllers made of it. To
// the controllers it is the API of the hub: they list, watch and patch works as if a kube-apiserver kept them. Every
// work is immutable once it is in here; changes put a new one in its place.
//
// A work gets its finalizer the moment it arrives, not by a controller some time later. So there is no instant in which
// a work could be deleted without anybody noticing.
type works struct {
	workv1client.ManifestWorkInterface // the methods nobody calls panic, as they should
	namespace                          string
	// changed is called, with the lock held, with each work whose status should be reported.
	changed func(name string)
	now     func() time.Time

	mu         sync.Mutex
	revision   int64
	byName     map[string]*workv1.ManifestWork
	removed    map[string]*workv1.ManifestWork
	tombstones map[string]tombstone
	watchers   map[*watcher]struct{}
	// listed is the watch that begins where the newest List ended.
	listed map[string]*watcher
}

type tombstone struct {
	generation int64
	until      time.Time
}

func newWorks(namespace string, changed func(name string)) *works {
	return &works{
		namespace: namespace, changed: changed, now: time.Now,
		byName: map[string]*workv1.ManifestWork{}, removed: map[string]*workv1.ManifestWork{},
		tombstones: map[string]tombstone{}, watchers: map[*watcher]struct{}{}, listed: map[string]*watcher{},
	}
}

// receive takes a work from the server in. The work must not be changed afterwards.
func (w *works) receive(work *workv1.ManifestWork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.byName[work.Name]
	deleting := !work.DeletionTimestamp.IsZero()

	if !known {
		if grave, ok := w.tombstones[work.Name]; ok {
			if !deleting && work.Generation <= grave.generation && w.now().Before(grave.until) {
				return
			}
			delete(w.tombstones, work.Name)
		}
		// A deletion of what is unknown is worked through like any other: after a restart, the work's resources may
		// well be there.
		work.Finalizers = []string{workv1.ManifestWorkFinalizer}
		w.put(work, watch.Added)
		return
	}
	switch {
	case work.Generation != 0 && work.Generation < last.Generation:
		return
	case deleting && !last.DeletionTimestamp.IsZero():
		if work.Annotations[maestroapi.AnnotationReleaseFinalizers] == "" {
			return
		}
		// Said again, it is done again: what is to be released may have come to be deleted since.
		next := last.DeepCopy()
		next.Annotations = work.Annotations
		w.put(next, watch.Modified)
		return
	case deleting:
		next := last.DeepCopy()
		next.DeletionTimestamp = work.DeletionTimestamp
		next.Generation = work.Generation
		next.Annotations = work.Annotations
		w.put(next, watch.Modified)
		return
	case !last.DeletionTimestamp.IsZero() && work.Generation == last.Generation:
		// What is being deleted stays so. Only a new version, that is a new life of the id, ends that; and that one
		// waits until the old life is over: the server sends it again.
		return
	case !last.DeletionTimestamp.IsZero():
		return
	}
	if work.Generation == last.Generation && equality.Semantic.DeepEqual(work.Spec, last.Spec) {
		// Sent again because the server missed a report.
		w.changed(work.Name)
		return
	}
	work.Finalizers = last.Finalizers
	work.Status = *last.Status.DeepCopy()
	work.CreationTimestamp = last.CreationTimestamp
	if equality.Semantic.DeepEqual(work.Spec, last.Spec) && equality.Semantic.DeepEqual(work.Labels, last.Labels) {
		// Nothing that is applied has changed, so what was observed holds for this version as well.
		observe(work.Status.Conditions, last.Generation, work.Generation)
		for i := range work.Status.ResourceStatus.Manifests {
			observe(work.Status.ResourceStatus.Manifests[i].Conditions, last.Generation, work.Generation)
		}
		w.put(work, watch.Modified)
		w.changed(work.Name)
		return
	}
	w.put(work, watch.Modified)
}

func observe(conditions []metav1.Condition, from, to int64) {
	for i := range conditions {
		if conditions[i].ObservedGeneration == from {
			conditions[i].ObservedGeneration = to
		}
	}
}

// put stores a work and tells the watchers. The lock is held.
func (w *works) put(work *workv1.ManifestWork, kind watch.EventType) {
	w.revision++
	work.ResourceVersion = strconv.FormatInt(w.revision, 10)
	work.Namespace = w.namespace
	w.byName[work.Name] = work
	w.tell(kind, work)
}

func (w *works) tell(kind watch.EventType, work *workv1.ManifestWork) {
	for watcher := range w.watchers {
		watcher.add(watch.Event{Type: kind, Object: work})
	}
}

// held lists what the agent has.
func (w *works) held() []*workv1.ManifestWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*workv1.ManifestWork, 0, len(w.byName))
	for _, work := range w.byName {
		all = append(all, work)
	}
	return all
}

// has says whether the agent has a work.
func (w *works) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, has := w.byName[name]
	return has
}

// report gives the work to report under a name: what there is, or, after its removal, what there was with the condition
// that says so. Nil means that there is nothing to say.
func (w *works) report(name string) (work *workv1.ManifestWork, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if work, ok := w.removed[name]; ok {
		return work, true
	}
	return w.byName[name], false
}

// reported says that the removal has been reported.
func (w *works) reported(work *workv1.ManifestWork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed[work.Name] == work {
		delete(w.removed, work.Name)
	}
}

// Get is the hub's API.
func (w *works) Get(_ context.Context, name string, _ metav1.GetOptions) (*workv1.ManifestWork, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	work, ok := w.byName[name]
	if !ok {
		return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
	}
	return work.DeepCopy(), nil
}

// List is the hub's API. The watch that follows it starts here, so that no change falls between the two.
func (w *works) List(context.Context, metav1.ListOptions) (*workv1.ManifestWorkList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := strconv.FormatInt(w.revision, 10)
	list := &workv1.ManifestWorkList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, work := range w.byName {
		list.Items = append(list.Items, *work)
	}
	for version, abandoned := range w.listed {
		abandoned.end()
		delete(w.watchers, abandoned)
		delete(w.listed, version)
	}
	next := newWatcher(w)
	w.watchers[next] = struct{}{}
	w.listed[version] = next
	return list, nil
}

// Watch is the hub's API.
func (w *works) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, ok := w.listed[o.ResourceVersion]
	if !ok {
		return nil, apierrors.NewResourceExpired("works are watched from a list on")
	}
	delete(w.listed, o.ResourceVersion)
	next.begin()
	return next, nil
}

// Patch is the hub's API: the controllers set the status and, at the end of a deletion, take the finalizer away.
func (w *works) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*workv1.ManifestWork, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.byName[name]
	if !ok {
		return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
	}
	next, err := utils.Patch(kind, last.DeepCopy(), data)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("patch work %s: %w", name, err))
	}
	if next.UID != last.UID || next.ResourceVersion != last.ResourceVersion {
		return nil, apierrors.NewConflict(common.ManifestWorkGR, name, fmt.Errorf("the work has changed"))
	}
	if utils.IsStatusPatch(subresources) {
		changed := last.DeepCopy()
		changed.Status = next.Status
		w.put(changed, watch.Modified)
		w.changed(name)
		return changed.DeepCopy(), nil
	}
	changed := last.DeepCopy()
	changed.Finalizers = next.Finalizers
	if changed.DeletionTimestamp.IsZero() || len(changed.Finalizers) > 0 {
		w.put(changed, watch.Modified)
		return changed.DeepCopy(), nil
	}
	w.remove(changed)
	return changed.DeepCopy(), nil
}

// remove ends a work that is deleted and finalized. The lock is held.
func (w *works) remove(work *workv1.ManifestWork) {
	now := w.now()
	for name, grave := range w.tombstones {
		if now.After(grave.until) {
			delete(w.tombstones, name)
		}
	}
	w.tombstones[work.Name] = tombstone{generation: work.Generation, until: now.Add(tombstoneLife)}
	delete(w.byName, work.Name)
	w.revision++
	work.ResourceVersion = strconv.FormatInt(w.revision, 10)
	w.tell(watch.Deleted, work)

	last := work.DeepCopy()
	last.Status.ResourceStatus.Manifests = nil
	meta.SetStatusCondition(&last.Status.Conditions, metav1.Condition{
		Type: common.ResourceDeleted, Status: metav1.ConditionTrue, Reason: "ManifestsDeleted",
		Message: fmt.Sprintf("The manifests are deleted from the cluster %s", w.namespace), ObservedGeneration: last.Generation,
	})
	w.removed[work.Name] = last
	w.changed(work.Name)
}
