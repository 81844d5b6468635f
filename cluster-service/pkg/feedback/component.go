package feedback

import (
	"unicode/utf8"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// Component is the reported state of one component of a control plane, from its ControlPlaneComponent.
type Component struct {
	// Version is the release that all of the component runs, or ran before a rollout. It changes when a rollout is complete.
	Version string `json:"version,omitempty"`
	// Rollout is the condition RolloutComplete.
	Rollout Condition `json:"rollout,omitzero"`
}

const (
	// RolloutComplete is the type of the condition that is True when all of a component runs the desired release.
	RolloutComplete = string(hyperv1.ControlPlaneComponentRolloutComplete)
	// WaitingForDependencies is the reason of RolloutComplete when the rollout of a component has not begun.
	WaitingForDependencies = hyperv1.WaitingForDependenciesReason
)

const (
	componentKind = "ControlPlaneComponent"
	// maxComponents is the number of components of one control plane that are stored.
	maxComponents = 64
	// maxComponentName is the maximum length of a component's name.
	maxComponentName = 253
)

// readComponent reads one component of a control plane. It leaves out a component that does not exist, because an agent
// continues to report the last values of an object that was deleted, and a component without values.
func (o *Observed) readComponent(manifest *workv1.ManifestCondition) {
	name := manifest.ResourceMeta.Name
	if isMissing(manifest) || name == "" || len(name) > maxComponentName || !utf8.ValidString(name) {
		return
	}
	seen := &Observed{}
	for i := range manifest.StatusFeedbacks.Values {
		seen.readValue(&manifest.StatusFeedbacks.Values[i])
	}
	component := Component{Version: clip(seen.Version), Rollout: seen.Condition(RolloutComplete)}
	if component == (Component{}) || len(o.Components) >= maxComponents {
		return
	}
	if o.Components == nil {
		o.Components = map[string]Component{}
	}
	o.Components[name] = component
}
