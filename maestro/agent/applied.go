package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// firstReapply and lastReapply bound the pause before an object that keeps being removed is applied again. The first removal
	// is followed by an apply at once.
	firstReapply, lastReapply = time.Second, time.Minute
	// removalMemory is the age after which an earlier removal does not count for the pause.
	removalMemory = 10 * time.Minute
	// heldRecheck is the interval at which a work is tried again that waits for the owner of one of its objects.
	heldRecheck = time.Minute
)

// applied watches the objects that works apply, so that an object that another client removes is noticed, reported and applied
// again at once. The controllers of the work agent apply a work only when its content changes and after resyncInterval.
//
// It has one watch per kind over all namespaces, of metadata only. It stores nothing but the identity of the objects that works
// apply, so its memory is bounded by their number and not by the number of objects on the management cluster.
type applied struct {
	client metadata.Interface
	works  *works
	// apply and status add a work to the queues of the controllers that apply and that read the status.
	apply  func(work string, after time.Duration)
	status func(work string)
	// recheck makes the controller that deletes the objects of AppliedManifestWorks continue with those with the given names.
	recheck func(names []string)
	now     func() time.Time
	log     *slog.Logger

	ctx   context.Context
	group sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	kinds    map[schema.GroupVersionResource]map[string]*appliedObject
	byWork   map[string][]*appliedObject
	// byNamespace contains the objects in a namespace, because they can be applied again as soon as the namespace exists again.
	byNamespace map[string]map[*appliedObject]struct{}
	byUID       map[types.UID]*appliedObject
	// deletions contains the objects whose deletion a controller awaits.
	deletions map[schema.GroupVersionResource]map[string]*awaitedDeletion
}

// appliedObject is one object that works apply.
type appliedObject struct {
	gvr             schema.GroupVersionResource
	namespace, name string
	works           map[string]struct{}
	// uid is the identity of the object as last seen; empty if it was never seen. owners are its owners other than works.
	uid    types.UID
	owners []types.UID
	// deleting is true while the object has a deletion timestamp, and gone while it does not exist although it was seen.
	deleting, gone bool
	// removal is the last removal; the zero value if there was none.
	removal removal
	// removals counts the removals that followed each other within removalMemory.
	removals int
}

func newApplied(ctx context.Context, client metadata.Interface, works *works, log *slog.Logger) *applied {
	return &applied{
		client: client, works: works, now: time.Now, log: log, ctx: ctx,
		kinds: map[schema.GroupVersionResource]map[string]*appliedObject{}, byWork: map[string][]*appliedObject{},
		byNamespace: map[string]map[*appliedObject]struct{}{}, byUID: map[types.UID]*appliedObject{},
		deletions: map[schema.GroupVersionResource]map[string]*awaitedDeletion{},
	}
}

// register replaces the objects of a work. uids are the identities with which the work applied objects before, so that a removal
// is noticed that happened while the agent did not run.
func (a *applied) register(work string, named []workv1.AppliedManifestResourceMeta, uids []workv1.AppliedManifestResourceMeta) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.byWork[work]
	objects := make([]*appliedObject, 0, len(named))
	for i := range named {
		o := a.object(&named[i])
		if o == nil {
			continue
		}
		o.works[work] = struct{}{}
		objects = append(objects, o)
		for j := range uids {
			if o.uid == "" && !o.gone && uids[j].ResourceIdentifier == named[i].ResourceIdentifier && uids[j].UID != "" {
				a.identify(o, types.UID(uids[j].UID), nil)
			}
		}
	}
	a.byWork[work] = objects
	for _, o := range old {
		if !slices.Contains(objects, o) {
			a.release(work, o)
		}
	}
}

// object returns the entry of an object and starts the watch of its kind. It returns nil if the kind cannot be watched. The
// caller holds the lock.
func (a *applied) object(named *workv1.AppliedManifestResourceMeta) *appliedObject {
	gvr := schema.GroupVersionResource{Group: named.Group, Version: named.Version, Resource: named.Resource}
	if !a.watches(gvr) {
		return nil
	}
	objects := a.kinds[gvr]
	id := key(named.Namespace, named.Name)
	o := objects[id]
	if o == nil {
		o = &appliedObject{gvr: gvr, namespace: named.Namespace, name: named.Name, works: map[string]struct{}{}}
		objects[id] = o
		if a.byNamespace[o.namespace] == nil {
			a.byNamespace[o.namespace] = map[*appliedObject]struct{}{}
		}
		a.byNamespace[o.namespace][o] = struct{}{}
	}
	return o
}

// watches starts the watch of a kind if it does not run yet, and reports whether it can. The caller holds the lock.
func (a *applied) watches(gvr schema.GroupVersionResource) bool {
	if _, watched := a.kinds[gvr]; watched {
		return true
	}
	if len(a.kinds) >= maxKinds || a.stopping {
		a.log.Warn("kind is not watched for removals; its objects are applied again with the next resync", logkey.Kind, gvr.String(), logkey.Limit, maxKinds)
		return false
	}
	a.kinds[gvr] = map[string]*appliedObject{}
	a.watch(gvr)
	return true
}

// othersOf returns the works other than the given one that apply an object.
func (a *applied) othersOf(work string, o objectKey) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var others []string
	for gvr, objects := range a.kinds {
		if found := objects[key(o.namespace, o.name)]; found != nil && gvr.GroupResource() == o.resource {
			for other := range found.works {
				if other != work {
					others = append(others, other)
				}
			}
		}
	}
	return others
}

// resources returns the kinds of the objects that works apply, in order.
func (a *applied) resources() []schema.GroupResource {
	a.mu.Lock()
	defer a.mu.Unlock()
	var kinds []schema.GroupResource
	for gvr, objects := range a.kinds {
		if len(objects) > 0 {
			kinds = append(kinds, gvr.GroupResource())
		}
	}
	slices.SortFunc(kinds, func(x, y schema.GroupResource) int { return strings.Compare(x.String(), y.String()) })
	return kinds
}

// forget removes a work. Objects that waited for one of its objects are applied.
func (a *applied) forget(work string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	objects := a.byWork[work]
	delete(a.byWork, work)
	for _, o := range objects {
		a.release(work, o)
		a.retryNamespace(o.namespace)
	}
}

// release removes a work from an object. The caller holds the lock.
func (a *applied) release(work string, o *appliedObject) {
	delete(o.works, work)
	if len(o.works) > 0 {
		return
	}
	delete(a.kinds[o.gvr], key(o.namespace, o.name))
	delete(a.byUID, o.uid)
	delete(a.byNamespace[o.namespace], o)
	if len(a.byNamespace[o.namespace]) == 0 {
		delete(a.byNamespace, o.namespace)
	}
}

// identify sets the identity of an object. The caller holds the lock.
func (a *applied) identify(o *appliedObject, uid types.UID, owners []types.UID) {
	if o.uid != uid {
		delete(a.byUID, o.uid)
		a.byUID[uid] = o
	}
	o.uid, o.owners = uid, owners
}

// holds reports whether a work must not be applied now: the owner of one of its removed objects is being removed itself. Until
// the owner exists again, its controller would delete the object again. A HostedCluster, for example, is not deleted while it has
// NodePools.
func (a *applied) holds(work string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.byWork[work], a.isHeld)
}

func (a *applied) isHeld(o *appliedObject) bool {
	return o.gone && slices.ContainsFunc(o.owners, func(uid types.UID) bool {
		owner := a.byUID[uid]
		return owner != nil && (owner.deleting || owner.gone)
	})
}

// seen processes an object that exists.
func (a *applied) seen(gvr schema.GroupVersionResource, object *metav1.PartialObjectMetadata) {
	a.mu.Lock()
	defer a.mu.Unlock()
	created := false
	if o := a.kinds[gvr][key(object.Namespace, object.Name)]; o != nil {
		created = a.seenLocked(o, object)
	}
	if created && gvr == namespaces {
		a.retryNamespace(object.Name)
	}
}

// seenLocked updates an entry from its object and reports whether the object is new.
func (a *applied) seenLocked(o *appliedObject, object *metav1.PartialObjectMetadata) (created bool) {
	uid, known := object.UID, o.uid
	created = o.gone || known != uid
	if known != "" && known != uid && !o.gone {
		// The time of the removal is unknown; the creation of the successor is the latest possible one.
		a.remove(o, removal{reason: removedReplaced, uid: known, at: object.CreationTimestamp.Time})
	}
	var owners []types.UID
	for _, owner := range object.OwnerReferences {
		if owner.Kind != appliedWorkKind {
			owners = append(owners, owner.UID)
		}
	}
	wasGone := o.gone || known != "" && known != uid
	o.gone = false
	a.identify(o, uid, owners)
	deletion := object.DeletionTimestamp
	o.deleting = deletion != nil
	switch {
	case o.deleting && (o.removal.uid != uid || !o.removal.ongoing()):
		a.remove(o, removal{reason: removedDeleting, uid: uid, at: deletion.Time})
	case wasGone && !o.deleting && o.removal.ongoing():
		o.removal.restored = object.CreationTimestamp.Time
		a.report(o)
		// Objects that this one owned may be applied now.
		a.retryNamespace(o.namespace)
	}
	return created
}

// deleted processes an object that does not exist any more.
func (a *applied) deleted(gvr schema.GroupVersionResource, object *metav1.PartialObjectMetadata) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.deletions[gvr], key(object.Namespace, object.Name))
	if owners := appliedOwners(object); len(owners) > 0 {
		a.recheck(owners)
	}
	o := a.kinds[gvr][key(object.Namespace, object.Name)]
	if o == nil || o.gone || o.uid != "" && o.uid != object.UID {
		return
	}
	at := a.now()
	if object.DeletionTimestamp != nil {
		at = object.DeletionTimestamp.Time
	}
	a.identify(o, object.UID, o.owners)
	a.vanished(o, at)
}

// vanished records that an object does not exist any more, and applies its works. The caller holds the lock.
func (a *applied) vanished(o *appliedObject, at time.Time) {
	o.gone, o.deleting = true, false
	if o.removal.uid == o.uid && o.removal.ongoing() {
		at = o.removal.at
	}
	a.remove(o, removal{reason: removedDeleted, uid: o.uid, at: at})
	if !a.isHeld(o) {
		a.reapply(o)
	}
	a.retryNamespace(o.namespace) // an object whose owner this was may be free now
}

// remove stores a removal and reports it. The caller holds the lock.
func (a *applied) remove(o *appliedObject, r removal) {
	if r.uid != o.removal.uid {
		if !o.removal.restored.IsZero() && a.now().Sub(o.removal.restored) > removalMemory {
			o.removals = 0
		}
		o.removals++
	}
	o.removal = r
	a.report(o)
}

// report sets the conditions of a removed object in the status of its works.
func (a *applied) report(o *appliedObject) {
	for work := range o.works {
		if a.works.setRemoval(work, o.gvr, o.namespace, o.name, o.removal) && o.removal.ongoing() {
			a.log.Warn("applied object removed by another client", logkey.Work, work, logkey.Kind, o.gvr.GroupResource().String(),
				logkey.Namespace, o.namespace, logkey.Name, o.name, logkey.UID, string(o.removal.uid), logkey.Reason, o.removal.reason)
		}
		a.status(work)
	}
}

// reportWork sets the conditions of all removed objects of a work, after a controller has rebuilt its status.
func (a *applied) reportWork(work string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.byWork[work] {
		if o.removal != (removal{}) {
			a.works.setRemoval(work, o.gvr, o.namespace, o.name, o.removal)
		}
	}
}

// reportAfter returns a wrapper that calls reportWork after each sync.
func (a *applied) reportAfter(around func(context.Context, string, func() error) error) func(context.Context, string, func() error) error {
	return func(ctx context.Context, work string, sync func() error) error {
		defer a.reportWork(work)
		return around(ctx, work, sync)
	}
}

// reapply applies the works of an object, at once after its first removal.
func (a *applied) reapply(o *appliedObject) {
	pause := time.Duration(0)
	if o.removals > 1 {
		pause = backoff.After(o.removals-1, firstReapply, lastReapply)
	}
	for work := range o.works {
		a.apply(work, pause)
	}
}

// retryNamespace applies the works of missing objects in a namespace. The caller holds the lock.
func (a *applied) retryNamespace(namespace string) {
	for o := range a.byNamespace[namespace] {
		if (o.gone || o.uid == "") && !a.isHeld(o) {
			a.reapply(o)
		}
	}
}

// replace processes a complete list of the objects of a kind: at the start of its watch, and after the watch was interrupted.
func (a *applied) replace(gvr schema.GroupVersionResource, list []any) {
	present := map[string]bool{}
	for _, item := range list {
		if object, ok := item.(*metav1.PartialObjectMetadata); ok {
			present[key(object.Namespace, object.Name)] = true
			a.seen(gvr, object)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, o := range a.kinds[gvr] {
		if !present[id] && o.uid != "" && !o.gone {
			a.vanished(o, a.now())
		}
	}
	for id, d := range a.deletions[gvr] {
		if !present[id] {
			delete(a.deletions[gvr], id)
			if d.object != nil {
				a.recheck(appliedOwners(d.object))
			}
		}
	}
}

// watch starts the watch of a kind. It ends with the context of the agent. The caller holds the lock.
func (a *applied) watch(gvr schema.GroupVersionResource) {
	resource := a.client.Resource(gvr)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, &appliedKind{a, gvr},
		cache.ReflectorOptions{Name: "applied " + gvr.String(), TypeDescription: gvr.String()})
	a.group.Go(func() { reflector.RunWithContext(a.ctx) })
	a.log.Info("watching kind for removals", logkey.Kind, gvr.String())
}

// wait waits until all watches have ended after their context. No further watch can start.
func (a *applied) wait() {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	a.group.Wait()
}

// appliedKind receives the events of one kind. It stores no objects.
type appliedKind struct {
	applied *applied
	gvr     schema.GroupVersionResource
}

var _ cache.ReflectorStore = (*appliedKind)(nil)

// Add implements cache.ReflectorStore.
func (k *appliedKind) Add(object any) error { return k.pass(object, k.applied.seen) }

// Update implements cache.ReflectorStore.
func (k *appliedKind) Update(object any) error { return k.pass(object, k.applied.seen) }

// Delete implements cache.ReflectorStore.
func (k *appliedKind) Delete(object any) error { return k.pass(object, k.applied.deleted) }

// Replace implements cache.ReflectorStore.
func (k *appliedKind) Replace(list []any, _ string) error {
	k.applied.replace(k.gvr, list)
	return nil
}

// Resync implements cache.ReflectorStore.
func (k *appliedKind) Resync() error { return nil }

func (k *appliedKind) pass(object any, to func(schema.GroupVersionResource, *metav1.PartialObjectMetadata)) error {
	partial, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("watch of %s: unexpected object %T", k.gvr, object)
	}
	to(k.gvr, partial)
	return nil
}

// applier prepares each sync of the controller that applies works.
type applier struct {
	finalizer *finalizer
	lister    freshLister
	applied   *applied
}

// prepare registers the objects of a work before it is applied. It skips works that are being deleted, and works that must not be
// applied now.
func (p *applier) prepare(ctx context.Context, name string) (skip bool, err error) {
	work, err := p.lister.Get(name)
	if err != nil || !work.DeletionTimestamp.IsZero() {
		p.applied.forget(name)
		return true, nil
	}
	if err := p.register(work); err != nil {
		return false, err
	}
	if p.applied.holds(name) {
		p.applied.apply(name, heldRecheck)
		return true, nil
	}
	if a := attemptOf(ctx); a != nil {
		a.work = work
		a.owner, _ = p.finalizer.lister.Get(p.finalizer.hubHash + "-" + name) // if it does not exist, the controller creates it
	}
	return false, nil
}

// register registers the objects that a work applies. Objects that the agent only reads are left out.
func (p *applier) register(work *workv1.ManifestWork) error {
	var named []workv1.AppliedManifestResourceMeta
	for _, manifest := range work.Spec.Workload.Manifests {
		object, err := p.finalizer.identify(manifest.Raw)
		if err != nil {
			return err
		}
		if object != nil && !isReadOnly(work, object.ResourceIdentifier) {
			named = append(named, *object)
		}
	}
	var uids []workv1.AppliedManifestResourceMeta
	if last, err := p.finalizer.lister.Get(p.finalizer.hubHash + "-" + work.Name); err == nil {
		uids = last.Status.AppliedResources
	}
	p.applied.register(work.Name, named, uids)
	return nil
}

func isReadOnly(work *workv1.ManifestWork, object workv1.ResourceIdentifier) bool {
	i := slices.IndexFunc(work.Spec.ManifestConfigs, func(c workv1.ManifestConfigOption) bool { return c.ResourceIdentifier == object })
	if i < 0 {
		return false
	}
	strategy := work.Spec.ManifestConfigs[i].UpdateStrategy
	return strategy != nil && strategy.Type == workv1.UpdateStrategyTypeReadOnly
}
