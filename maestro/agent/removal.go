package agent

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// removal is the removal of an applied object by another client than the agent.
type removal struct {
	// reason is a reason of maestroapi.ConditionRemoved.
	reason string
	// uid is the identity of the removed object.
	uid types.UID
	// at is the time of the removal. restored is the time since which the object exists again; zero if it does not.
	at, restored time.Time
}

// The reasons of a removal.
const (
	removedDeleting = maestroapi.RemovedBeingDeleted
	removedDeleted  = maestroapi.RemovedDeleted
	removedReplaced = maestroapi.RemovedReplaced
)

// ongoing reports whether there is a removal after which the object does not exist again.
func (r removal) ongoing() bool { return r.reason != "" && r.restored.IsZero() }

// conditions returns the conditions with which the removal is reported. Their transition times are the times of the removal and
// of the new creation, so that one report states both even if it is sent later.
func (r removal) conditions(generation int64) []metav1.Condition {
	removed := metav1.Condition{Type: maestroapi.ConditionRemoved, Status: metav1.ConditionTrue, Reason: r.reason,
		Message: fmt.Sprintf("UID %s", r.uid), LastTransitionTime: metav1.NewTime(r.at), ObservedGeneration: generation}
	again := metav1.Condition{Type: maestroapi.ConditionAppliedAgain, Status: metav1.ConditionFalse, Reason: "Missing",
		LastTransitionTime: metav1.NewTime(r.at), ObservedGeneration: generation}
	if !r.ongoing() {
		again.Status, again.Reason, again.LastTransitionTime = metav1.ConditionTrue, "Exists", metav1.NewTime(r.restored)
	}
	return []metav1.Condition{removed, again}
}

// setRemoval sets the conditions of a removed object in the status of a work, and reports whether they changed. It does nothing if
// the work is being deleted, or if the object is not in its status yet.
func (w *works) setRemoval(work string, gvr schema.GroupVersionResource, namespace, name string, r removal) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.byName[work]
	if !known || !last.DeletionTimestamp.IsZero() {
		return false
	}
	i := slices.IndexFunc(last.Status.ResourceStatus.Manifests, func(m workv1.ManifestCondition) bool {
		of := m.ResourceMeta
		return of.Group == gvr.Group && of.Resource == gvr.Resource && of.Namespace == namespace && of.Name == name
	})
	if i < 0 {
		return false
	}
	before := last.Status.ResourceStatus.Manifests[i].Conditions
	after := slices.Clone(before)
	for _, condition := range r.conditions(last.Generation) {
		meta.RemoveStatusCondition(&after, condition.Type)
		after = append(after, condition)
	}
	if sameConditions(before, after) {
		return false
	}
	next := last.DeepCopy()
	next.Status.ResourceStatus.Manifests[i].Conditions = after
	w.put(next, watch.Modified)
	w.changed(work)
	return true
}

// sameConditions reports whether two lists have the same conditions, in any order.
func sameConditions(a, b []metav1.Condition) bool {
	return len(a) == len(b) && !slices.ContainsFunc(b, func(c metav1.Condition) bool {
		other := meta.FindStatusCondition(a, c.Type)
		return other == nil || !equality.Semantic.DeepEqual(*other, c)
	})
}
