// Package version says what an ARM api-version consists of: a table for each resource. Each version has a package of its
// own beside this one, which takes the version before it and changes what differs, so that a version that was published is
// never touched again. The tables say only how things are written; what values are acceptable is validated on the hub type.
package version

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

// Version is one api-version.
type Version struct {
	// Name is the value of the api-version parameter.
	Name string

	Cluster      shape.Field
	NodePool     shape.Field
	ExternalAuth shape.Field

	// VersionOptional says that a cluster may leave its OpenShift version to the service.
	VersionOptional bool
	// AcceptsCSR says that a request for an admin credential brings the client's own certificate signing request;
	// before, it had no body, and the service made the key.
	AcceptsCSR bool
}

// Condition is one aspect of a resource's observed state.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
}

// The condition types that customers see; the hub has more.
const (
	available   = "Available"
	degraded    = "Degraded"
	progressing = "Progressing"
)

// maxConditions is how many conditions a status may have.
const maxConditions = 10

// Conditions are those that customers see.
func Conditions(observed []hub.Condition) []Condition {
	var shown []Condition
	for _, condition := range observed {
		switch condition.Type {
		case available, degraded, progressing:
			if len(shown) < maxConditions {
				shown = append(shown, Condition{
					Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
					Reason: condition.Reason, Message: condition.Message,
				})
			}
		}
	}
	return shown
}

// PrimaryCondition is the condition that says most where there is room for one: Available, which names the reason when it is
// false, or else whichever there is. It is nil when there is none.
func PrimaryCondition(observed []hub.Condition) *Condition {
	shown := Conditions(observed)
	for i := range shown {
		if shown[i].Type == available {
			return &shown[i]
		}
	}
	if len(shown) == 0 {
		return nil
	}
	return &shown[0]
}

// Status is the observed state of a resource; nil when nothing was observed yet.
func Status(observed []hub.Condition) any {
	shown := Conditions(observed)
	if len(shown) == 0 {
		return nil
	}
	return struct {
		Conditions []Condition `json:"conditions"`
	}{shown}
}
