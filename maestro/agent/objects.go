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
	"open-cluster-management.io/ocm/pkg/work/helper"
	"open-cluster-management.io/ocm/pkg/work/spoke/objectreader"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// maxKinds bounds the kinds that are watched for feedback. Objects of further kinds are polled.
const maxKinds = 64

// objects reads applied objects for their feedback, from one watch per kind over all namespaces. The reader of the work agent has
// a watch per kind and namespace, and each hosted cluster has namespaces of its own. Here a thousand clusters need as many
// watches as one.
type objects struct {
	client dynamic.Interface
	log    *slog.Logger

	mu    sync.Mutex
	ctx   context.Context
	kinds map[schema.GroupVersionResource]*kind
	// byWork contains the objects that are registered for a work.
	byWork map[string]map[watched]struct{}
	// stopping is set when wait is called.
	stopping bool
	group    sync.WaitGroup
}

// watched identifies an object of a watched kind.
type watched struct {
	gvr    schema.GroupVersionResource
	object string
}

// kind is one watched kind.
type kind struct {
	informer cache.SharedIndexInformer
	lister   cache.GenericLister
	// interested contains the works that receive changes of an object, by namespace/name of the object and name of the work.
	interested map[string]map[string]*interest
}

// interest is the interest of a work in an object.
type interest struct {
	queue workqueue.TypedRateLimitingInterface[string]
	// readOnly states that the work does not apply the object.
	readOnly bool
}

// isOnlyRead reports whether works receive the changes of an object, and none of them applies it.
func (k *kind) isOnlyRead(object string) bool {
	for _, i := range k.interested[object] {
		if !i.readOnly {
			return false
		}
	}
	return len(k.interested[object]) > 0
}

var _ objectreader.ObjectReader = (*objects)(nil)

func newObjects(ctx context.Context, client dynamic.Interface, log *slog.Logger) *objects {
	return &objects{client: client, log: log, ctx: ctx, kinds: map[schema.GroupVersionResource]*kind{}, byWork: map[string]map[watched]struct{}{}}
}

// Get implements objectreader.ObjectReader. It reads an object from the watch of its kind. An object that the watch does not have
// is read from the API server, because the agent may have just created it. An object that works only read is not: its creation is an
// event, after which it is read again. Nor is an object of a work that is being deleted, of which the agent creates nothing.
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
	onlyRead := k != nil && k.isOnlyRead(key(m.Namespace, m.Name))
	o.mu.Unlock()
	if k != nil && k.informer.HasSynced() {
		object, exists, err := k.informer.GetIndexer().GetByKey(key(m.Namespace, m.Name))
		if err == nil && exists {
			return object.(*unstructured.Unstructured), nil
		}
		if err == nil && (onlyRead || ctx.Value(deletionKey{}) != nil) {
			return nil, apierrors.NewNotFound(gvr.GroupResource(), m.Name)
		}
	}
	object, err := o.client.Resource(gvr).Namespace(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return withForeignFields(object), nil
}

// RegisterInformer implements objectreader.ObjectReader. It adds the work to the queue whenever the object changes.
func (o *objects) RegisterInformer(_ context.Context, work string, m workv1.ManifestResourceMeta, queue workqueue.TypedRateLimitingInterface[string]) error {
	gvr := schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}
	o.mu.Lock()
	defer o.mu.Unlock()
	k, ok := o.kinds[gvr]
	if !ok {
		if len(o.kinds) >= maxKinds {
			return fmt.Errorf("%d kinds are watched already, %s is polled", maxKinds, gvr)
		}
		var err error
		if k, err = o.watch(gvr); err != nil {
			return err
		}
	}
	object := key(m.Namespace, m.Name)
	if k.interested[object] == nil {
		k.interested[object] = map[string]*interest{}
	}
	if _, known := k.interested[object][work]; !known {
		k.interested[object][work] = &interest{queue: queue}
		if o.byWork[work] == nil {
			o.byWork[work] = map[watched]struct{}{}
		}
		o.byWork[work][watched{gvr, object}] = struct{}{}
		// The object may have changed since the caller read it.
		queue.Add(work)
	}
	return nil
}

// registerAll registers the objects of a work whose feedback is watched, whether they exist or not. The status controller registers
// an object when it has read it, and so would not notice that another client creates an object that the work only reads.
func (o *objects) registerAll(ctx context.Context, work *workv1.ManifestWork, queue workqueue.TypedRateLimitingInterface[string]) {
	for i := range work.Status.ResourceStatus.Manifests {
		m := work.Status.ResourceStatus.Manifests[i].ResourceMeta
		option := helper.FindManifestConfiguration(m, work.Spec.ManifestConfigs)
		if option == nil || option.FeedbackScrapeType != workv1.FeedbackWatchType || m.Resource == "" || m.Version == "" {
			continue
		}
		if err := o.RegisterInformer(ctx, work.Name, m, queue); err != nil {
			o.log.DebugContext(ctx, "object is not watched for feedback", logkey.Work, work.Name, logkey.Kind, m.Resource, logkey.Name, m.Name, logkey.Error, err)
			continue
		}
		o.setReadOnly(work.Name, m, option.UpdateStrategy != nil && option.UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly)
	}
}

// setReadOnly sets whether a work only reads an object in whose changes it is interested.
func (o *objects) setReadOnly(work string, m workv1.ManifestResourceMeta, readOnly bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.kinds[schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}]
	if i := k.interested[key(m.Namespace, m.Name)][work]; i != nil {
		i.readOnly = readOnly
	}
}

// UnRegisterInformer implements objectreader.ObjectReader. The kind stays watched, for other objects.
func (o *objects) UnRegisterInformer(work string, m workv1.ManifestResourceMeta) error {
	gvr := schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetObject(work, watched{gvr, key(m.Namespace, m.Name)})
	return nil
}

// keepRegistered is the ObjectReader of the controller that deletes objects. That controller unregisters objects as soon as it
// begins; here they stay registered until the work is removed, so that the progress of the deletion is reported.
type keepRegistered struct{ *objects }

// UnRegisterInformer does nothing.
func (keepRegistered) UnRegisterInformer(string, workv1.ManifestResourceMeta) error { return nil }

// forget removes all registrations of a work that was removed.
func (o *objects) forget(work string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.byWork[work] {
		o.forgetObject(work, w)
	}
}

// forgetObject removes one registration. The caller holds the lock.
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

// watch starts the watch of a kind. The caller holds the lock.
func (o *objects) watch(gvr schema.GroupVersionResource) (*kind, error) {
	if o.stopping {
		return nil, errors.New("the agent is stopping")
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(o.client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil)
	k := &kind{informer: informer.Informer(), lister: informer.Lister(), interested: map[string]map[string]*interest{}}
	if err := k.informer.SetTransform(reduce); err != nil {
		return nil, fmt.Errorf("watching %s: %w", gvr, err)
	}
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { o.notify(k, object) },
		UpdateFunc: func(_, object any) { o.notify(k, object) },
		DeleteFunc: func(object any) { o.notify(k, object) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", gvr, err)
	}
	o.kinds[gvr] = k
	o.group.Go(func() { k.informer.Run(o.ctx.Done()) })
	o.log.Info("watching kind for feedback", logkey.Kind, gvr.String())
	return k, nil
}

func (o *objects) notify(k *kind, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for work, i := range k.interested[key(accessor.GetNamespace(), accessor.GetName())] {
		i.queue.Add(work)
	}
}

// wait waits until all watches have ended after their context. No further watch can start.
func (o *objects) wait() {
	o.mu.Lock()
	o.stopping = true
	o.mu.Unlock()
	o.group.Wait()
}

// appliedWorkKind is the kind of the owner references that the agent adds to applied objects.
const appliedWorkKind = "AppliedManifestWork"

func appliedOwners(object metav1.Object) []string {
	var owners []string
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == appliedWorkKind {
			owners = append(owners, owner.Name)
		}
	}
	return owners
}

// reduce removes the managed fields of an object before it is stored, and keeps what feedback needs of them.
func reduce(object any) (any, error) {
	if content, ok := object.(*unstructured.Unstructured); ok {
		return withForeignFields(content), nil
	}
	return object, nil
}

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// statusPoll is the default of Options.StatusPoll.
const statusPoll = 10 * time.Minute
