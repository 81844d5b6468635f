package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/ocm/pkg/work/spoke/objectreader"
)

// maxKinds bounds how many kinds are watched for feedback; objects of further kinds are polled.
const maxKinds = 64

// objects reads the applied objects for their feedback, from one watch per kind over all namespaces. The work agent's
// own reader keeps a watch per kind and namespace, of which hosted clusters have one each; here a thousand clusters
// cost as many watches as one.
type objects struct {
	client dynamic.Interface
	log    *slog.Logger
	// gone is called when an object of a watched kind has been removed, with the AppliedManifestWorks that own it.
	gone func(owners []string)

	mu    sync.Mutex
	ctx   context.Context
	kinds map[schema.GroupVersionResource]*kind
	// byWork are the objects that a work wants to hear of.
	byWork map[string]map[watched]struct{}
	// ended is set when the watches that run are waited for.
	ended bool
	run   sync.WaitGroup
}

// watched names an object of a watched kind.
type watched struct {
	gvr    schema.GroupVersionResource
	object string
}

// kind is one watched kind.
type kind struct {
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
	// queues of the works that want to hear of an object, by the object's namespace/name and the work's name.
	interested map[string]map[string]workqueue.TypedRateLimitingInterface[string]
}

var _ objectreader.ObjectReader = (*objects)(nil)

func newObjects(ctx context.Context, client dynamic.Interface, log *slog.Logger, gone func([]string)) *objects {
	return &objects{client: client, log: log, gone: gone, ctx: ctx, kinds: map[schema.GroupVersionResource]*kind{}, byWork: map[string]map[watched]struct{}{}}
}

// Get reads an object, from the watch where there is one. What the watch does not know is asked for live: it may have
// been created a moment ago.
func (o *objects) Get(ctx context.Context, m workv1.ManifestResourceMeta) (*unstructured.Unstructured, metav1.Condition, error) {
	condition := metav1.Condition{Type: workv1.ManifestAvailable}
	if m.Resource == "" || m.Version == "" || m.Name == "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "IncompleteResourceMeta", "Resource meta is incomplete"
		return nil, condition, fmt.Errorf("incomplete resource meta")
	}
	object, err := o.get(ctx, m)
	switch {
	case apierrors.IsNotFound(err):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "ResourceNotAvailable", "Resource is not available"
	case err != nil:
		condition.Status, condition.Reason = metav1.ConditionUnknown, "FetchingResourceFailed"
		condition.Message = fmt.Sprintf("Failed to fetch resource: %v", err)
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, "ResourceAvailable", "Resource is available"
	}
	return object, condition, err
}

func (o *objects) get(ctx context.Context, m workv1.ManifestResourceMeta) (*unstructured.Unstructured, error) {
	gvr := schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}
	o.mu.Lock()
	k := o.kinds[gvr]
	o.mu.Unlock()
	if k != nil && k.informer.HasSynced() {
		object, exists, err := k.informer.GetIndexer().GetByKey(key(m.Namespace, m.Name))
		if err == nil && exists {
			return object.(*unstructured.Unstructured), nil
		}
	}
	return o.client.Resource(gvr).Namespace(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
}

// RegisterInformer has the work's key put on the queue whenever the object changes.
func (o *objects) RegisterInformer(_ context.Context, work string, m workv1.ManifestResourceMeta, queue workqueue.TypedRateLimitingInterface[string]) error {
	gvr := schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}
	o.mu.Lock()
	defer o.mu.Unlock()
	k, ok := o.kinds[gvr]
	if !ok {
		if len(o.kinds) >= maxKinds {
			return fmt.Errorf("%d kinds are watched already; %s is polled", maxKinds, gvr)
		}
		var err error
		if k, err = o.watch(gvr); err != nil {
			return err
		}
	}
	object := key(m.Namespace, m.Name)
	if k.interested[object] == nil {
		k.interested[object] = map[string]workqueue.TypedRateLimitingInterface[string]{}
	}
	if _, known := k.interested[object][work]; !known {
		k.interested[object][work] = queue
		if o.byWork[work] == nil {
			o.byWork[work] = map[watched]struct{}{}
		}
		o.byWork[work][watched{gvr, object}] = struct{}{}
		// What changed between the caller's reading and this registration would otherwise go unnoticed.
		queue.Add(work)
	}
	return nil
}

// UnRegisterInformer ends that. The kind stays watched, for the next one and to see objects go.
func (o *objects) UnRegisterInformer(work string, m workv1.ManifestResourceMeta) error {
	gvr := schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetObject(work, watched{gvr, key(m.Namespace, m.Name)})
	return nil
}

// untilGone are the objects for the controller that deletes them, which ends their watches as soon as it begins. They are
// watched until the work is gone, so that one sees what its deletion waits for.
type untilGone struct{ *objects }

// UnRegisterInformer leaves it to forget.
func (untilGone) UnRegisterInformer(string, workv1.ManifestResourceMeta) error { return nil }

// forget ends every registration of a work that is gone.
func (o *objects) forget(work string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.byWork[work] {
		o.forgetObject(work, w)
	}
}

// forgetObject ends one registration. The lock is held.
func (o *objects) forgetObject(work string, w watched) {
	if k, ok := o.kinds[w.gvr]; ok {
		delete(k.interested[w.object], work)
		if len(k.interested[w.object]) == 0 {
			delete(k.interested, w.object)
		}
	}
	delete(o.byWork[work], w)
	if len(o.byWork[work]) == 0 {
		delete(o.byWork, work)
	}
}

// watch starts to watch a kind. The lock is held.
func (o *objects) watch(gvr schema.GroupVersionResource) (*kind, error) {
	if o.ended {
		return nil, errors.New("the agent is stopping")
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(o.client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil)
	k := &kind{informer: informer.Informer(), lister: informer.Lister(), interested: map[string]map[string]workqueue.TypedRateLimitingInterface[string]{}}
	if err := k.informer.SetTransform(withoutManagedFields); err != nil {
		return nil, fmt.Errorf("watch %s: %w", gvr, err)
	}
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.notify(k, object, false) },
		UpdateFunc: func(_, object any) { o.notify(k, object, false) },
		DeleteFunc: func(object any) { o.notify(k, object, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", gvr, err)
	}
	o.kinds[gvr] = k
	o.run.Go(func() { k.informer.Run(o.ctx.Done()) })
	o.log.Info("kind watched for feedback", "kind", gvr.String())
	return k, nil
}

func (o *objects) notify(k *kind, object any, deleted bool) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	o.mu.Lock()
	queues := k.interested[key(accessor.GetNamespace(), accessor.GetName())]
	for work, queue := range queues {
		queue.Add(work)
	}
	o.mu.Unlock()
	if deleted {
		o.gone(appliedOwners(accessor))
	}
}

// watchesAll reports whether objects are all of kinds that are watched, so that gone is called when one of them is.
func (o *objects) watchesAll(resources []workv1.AppliedManifestResourceMeta) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range resources {
		k := o.kinds[schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}]
		if k == nil || !k.informer.HasSynced() {
			return false
		}
	}
	return len(resources) > 0
}

// wait returns once every watch has ended, after the context has. None is begun any more.
func (o *objects) wait() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.run.Wait()
}

func appliedOwners(object metav1.Object) []string {
	var owners []string
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "AppliedManifestWork" {
			owners = append(owners, owner.Name)
		}
	}
	return owners
}

func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// statusPoll is how often objects that are not watched are looked at.
const statusPoll = 10 * time.Minute
