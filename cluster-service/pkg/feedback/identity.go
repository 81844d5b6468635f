package feedback

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Removal is the removal of an applied object by another client than the agent.
type Removal struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is the identity of the removed object.
	UID string `json:"uid,omitempty"`
	// Reason is one of the reasons of maestroapi.ConditionRemoved.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	// AppliedAgain is when the object existed again; zero while it does not.
	AppliedAgain time.Time `json:"appliedAgain,omitzero"`
}

// Ongoing reports whether the object does not exist again.
func (r *Removal) Ongoing() bool { return r.AppliedAgain.IsZero() }

// maxRemovals is the number of removals of one status that are stored. A work has fewer objects.
const maxRemovals = 32

// mainKinds are the kinds of objects without which their work has no effect.
var mainKinds = map[string]bool{"HostedCluster": true, "NodePool": true, "Namespace": true}

// isMissing reports whether the object of a manifest does not exist. An agent continues to report the last values of such an
// object.
func isMissing(manifest *workv1.ManifestCondition) bool {
	return meta.IsStatusConditionFalse(manifest.Conditions, workv1.ManifestAvailable)
}

// readRemoval reads the removal of an object, which only hcpmesh's agent reports.
func (o *Observed) readRemoval(manifest *workv1.ManifestCondition) {
	removed := meta.FindStatusCondition(manifest.Conditions, maestroapi.ConditionRemoved)
	if removed == nil || removed.Status != metav1.ConditionTrue || len(o.Removals) >= maxRemovals {
		return
	}
	of := manifest.ResourceMeta
	_, uid, _ := strings.Cut(removed.Message, "UID ")
	r := Removal{Kind: clip(of.Kind), Namespace: clip(of.Namespace), Name: clip(of.Name), UID: clip(uid), Reason: clip(removed.Reason), Time: removed.LastTransitionTime.UTC()}
	if again := meta.FindStatusCondition(manifest.Conditions, maestroapi.ConditionAppliedAgain); again != nil && again.Status == metav1.ConditionTrue {
		r.AppliedAgain = again.LastTransitionTime.UTC()
	}
	o.Removals = append(o.Removals, r)
}

// Removal returns the removal of the object of a kind; nil if none was reported.
func (o *Observed) Removal(kind string) *Removal {
	for i := range o.Removals {
		if o.Removals[i].Kind == kind {
			return &o.Removals[i]
		}
	}
	return nil
}

// BeingRemoved reports whether another client than the agent deletes a main object that still exists.
func (o *Observed) BeingRemoved() bool {
	for i := range o.Removals {
		if r := &o.Removals[i]; mainKinds[r.Kind] && r.Ongoing() {
			return true
		}
	}
	return false
}
