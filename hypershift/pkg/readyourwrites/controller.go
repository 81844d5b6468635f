package readyourwrites

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// NewQueue constructs the queue of a controller, as controller.Options.NewQueue does; nil is that of controller-runtime.
type NewQueue = func(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request]

// LockedPatch returns a patch with the differences from base that fails with a conflict if the object was written
// since. Fields that the pinned API types do not have survive, and no update of another writer is lost.
func LockedPatch(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// IgnoreStatusUpdates passes all events but updates of the status alone. It is for controllers that are the only writer
// of the status: no pass decides on an object older than its own last write, so none needs the event.
func IgnoreStatusUpdates() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers()) ||
				len(e.ObjectOld.GetOwnerReferences()) != len(e.ObjectNew.GetOwnerReferences())
		}})
}
