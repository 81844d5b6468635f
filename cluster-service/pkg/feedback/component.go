package feedback

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	workv1 "open-cluster-management.io/api/work/v1"
)

// Component is what a component of a control plane says of itself, in its ControlPlaneComponent.
type Component struct {
	// Version is the release that all of it runs, or ran last: it changes when a rollout is complete.
	Version string `json:"version,omitempty"`
	// Rollout is the condition RolloutComplete.
	Rollout Condition `json:"rollout,omitzero"`
}

// RolloutComplete is a component's word on whether all of it runs what it should; WaitingForDependencies the reason with which
// it says that it has not begun.
const (
	RolloutComplete        = "RolloutComplete"
	WaitingForDependencies = "WaitingForDependencies"
)

const (
	componentKind = "ControlPlaneComponent"
	// maxComponents bounds the components of one control plane that are kept, maxComponentName the length of a name.
	maxComponents    = 64
	maxComponentName = 253
)

// ComponentRules asks how far a component of a control plane is with its release.
func ComponentRules() []workv1.FeedbackRule {
	return rules([]string{RolloutComplete}, []workv1.JsonPath{{Name: nameVersion, Path: ".status.version"}})
}

// readComponent reads one of the components of a control plane. One that is not there, or says nothing, is left out: an agent
// goes on to report what it last read of one that has gone.
func (o *Observed) readComponent(manifest *workv1.ManifestCondition) {
	name := manifest.ResourceMeta.Name
	if meta.IsStatusConditionFalse(manifest.Conditions, workv1.ManifestAvailable) || name == "" || len(name) > maxComponentName || !utf8.ValidString(name) {
		return
	}
	seen := &Observed{}
	for i := range manifest.StatusFeedbacks.Values {
		seen.readValue(&manifest.StatusFeedbacks.Values[i])
	}
	rollout := seen.Condition(RolloutComplete)
	component := Component{Version: clip(seen.Version), Rollout: Condition{Status: clip(rollout.Status), Reason: clip(rollout.Reason), Message: rollout.Message}}
	if component == (Component{}) || len(o.Components) >= maxComponents {
		return
	}
	if o.Components == nil {
		o.Components = map[string]Component{}
	}
	o.Components[name] = component
}
