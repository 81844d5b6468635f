package agent

import (
	"context"
	"errors"
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

// tombstoneAge is how long a deleted work is remembered, so that an older event does not create it again. It must exceed the time
// that a message can be in transit.
const tombstoneAge = 10 * time.Minute

// works stores the ManifestWorks of the agent in memory: the specs that the server sent and the statuses that the controllers
// set. For the controllers it is the API of the hub: they list, watch and patch works as if a kube-apiserver stored them. A
// stored work is immutable; a change stores a new one.
//
// A work has its finalizer from its arrival on, not only after a controller has processed it, so that no deletion is missed.
type works struct {
	workv1client.ManifestWorkInterface // nil, so that methods which are not implemented here panic
	namespace                          string
	// changed is called, with the lock held, for each work whose status must be reported.
	changed func(name string)
	now     func() time.Time

	mu         sync.Mutex
	revision   int64
	byName     map[string]*workv1.ManifestWork
	removed    map[string]*workv1.ManifestWork
	tombstones map[string]tombstone
	watchers   map[*watcher]struct{}
	// listed contains the watch that starts at the newest List, by resource version.
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

// receive stores a work that the server sent. The caller must not change it afterwards.
func (w *works) receive(work *workv1.ManifestWork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.byName[work.Name]
	deleting := !work.DeletionTimestamp.IsZero()

	if !known {
		if stone, ok := w.tombstones[work.Name]; ok {
			if !deleting && work.Generation <= stone.generation && w.now().Before(stone.until) {
				return
			}
			delete(w.tombstones, work.Name)
		}
		// The deletion of an unknown work is processed too: after a restart of the agent, objects of the work may exist.
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
		// A repeated request removes finalizers again: more objects may be in deletion by now.
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
	case !last.DeletionTimestamp.IsZero():
		// A deletion is never revoked. A newer version is the next incarnation of the ID; the server sends it again after
		// this one is deleted.
		return
	}
	if work.Generation == last.Generation && equality.Semantic.DeepEqual(work.Spec, last.Spec) {
		// The server sends a work again if it has missed the report.
		w.changed(work.Name)
		return
	}
	work.Finalizers = last.Finalizers
	work.Status = *last.Status.DeepCopy()
	work.CreationTimestamp = last.CreationTimestamp
	if equality.Semantic.DeepEqual(work.Spec, last.Spec) && equality.Semantic.DeepEqual(work.Labels, last.Labels) {
		// The manifests have not changed, so the observed conditions also hold for this version.
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

// observe sets the observed generation of conditions that have the generation from.
func observe(conditions []metav1.Condition, from, to int64) {
	for i := range conditions {
		if conditions[i].ObservedGeneration == from {
			conditions[i].ObservedGeneration = to
		}
	}
}

// put stores a work and notifies the watchers. The caller holds the lock.
func (w *works) put(work *workv1.ManifestWork, kind watch.EventType) {
	w.revision++
	work.ResourceVersion = strconv.FormatInt(w.revision, 10)
	work.Namespace = w.namespace
	w.byName[work.Name] = work
	w.notifyWatchers(kind, work)
}

// notifyWatchers passes an event to all watches. The caller holds the lock.
func (w *works) notifyWatchers(kind watch.EventType, work *workv1.ManifestWork) {
	for watcher := range w.watchers {
		watcher.add(watch.Event{Type: kind, Object: work})
	}
}

// list returns all works.
func (w *works) list() []*workv1.ManifestWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*workv1.ManifestWork, 0, len(w.byName))
	for _, work := range w.byName {
		all = append(all, work)
	}
	return all
}

// has reports whether the agent has a work.
func (w *works) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, has := w.byName[name]
	return has
}

// report returns the work to report for a name: the stored work or, after its removal, its last state with the condition Deleted
// and removed set. It returns nil if there is neither.
func (w *works) report(name string) (work *workv1.ManifestWork, removed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if work, ok := w.removed[name]; ok {
		return work, true
	}
	return w.byName[name], false
}

// markReported forgets a removed work whose removal was reported.
func (w *works) markReported(work *workv1.ManifestWork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removed[work.Name] == work {
		delete(w.removed, work.Name)
	}
}

// Get implements ManifestWorkInterface.
func (w *works) Get(_ context.Context, name string, _ metav1.GetOptions) (*workv1.ManifestWork, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	work, ok := w.byName[name]
	if !ok {
		return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
	}
	return work.DeepCopy(), nil
}

// List implements ManifestWorkInterface. It also creates the watch that follows it, so that the watch misses no change.
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

// Watch implements ManifestWorkInterface. It starts at the newest List.
func (w *works) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next, ok := w.listed[o.ResourceVersion]
	if !ok {
		return nil, apierrors.NewResourceExpired("a watch of works must start at the newest list")
	}
	delete(w.listed, o.ResourceVersion)
	next.begin()
	return next, nil
}

// Patch implements ManifestWorkInterface. The controllers set the status and, at the end of a deletion, remove the finalizer.
func (w *works) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*workv1.ManifestWork, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.byName[name]
	if !ok {
		return nil, apierrors.NewNotFound(common.ManifestWorkGR, name)
	}
	next, err := utils.Patch(kind, last.DeepCopy(), data)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("patching work %s: %w", name, err))
	}
	if next.UID != last.UID || next.ResourceVersion != last.ResourceVersion {
		return nil, apierrors.NewConflict(common.ManifestWorkGR, name, errors.New("the work has changed"))
	}
	if utils.IsStatusPatch(subresources) {
		changed := last.DeepCopy()
		changed.Status = next.Status
		attemptOf(ctx).report(changed.Status.ResourceStatus.Manifests, changed.Generation)
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

// remove removes a work that was deleted and finalized. The caller holds the lock.
func (w *works) remove(work *workv1.ManifestWork) {
	now := w.now()
	for name, stone := range w.tombstones {
		if now.After(stone.until) {
			delete(w.tombstones, name)
		}
	}
	w.tombstones[work.Name] = tombstone{generation: work.Generation, until: now.Add(tombstoneAge)}
	delete(w.byName, work.Name)
	w.revision++
	work.ResourceVersion = strconv.FormatInt(w.revision, 10)
	w.notifyWatchers(watch.Deleted, work)

	last := work.DeepCopy()
	last.Status.ResourceStatus.Manifests = nil
	meta.SetStatusCondition(&last.Status.Conditions, metav1.Condition{
		Type: common.ResourceDeleted, Status: metav1.ConditionTrue, Reason: "ManifestsDeleted",
		Message: fmt.Sprintf("The manifests are deleted from the cluster %s", w.namespace), ObservedGeneration: last.Generation,
	})
	w.removed[work.Name] = last
	w.changed(work.Name)
}
