package ownwrites

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Locked is a patch that sends only what differs from base, and only if nothing else was written since: fields that this
// version of the API's types does not know survive, and no update of another writer is lost.
func Locked(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// NotStatusAlone passes everything but updates of the status alone, for a controller that is the only one to write that. No
// pass decides on an object older than its own last write, so none has to be woken by it.
func NotStatusAlone() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers()) ||
				len(e.ObjectOld.GetOwnerReferences()) != len(e.ObjectNew.GetOwnerReferences())
		}})
}
