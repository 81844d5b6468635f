// Package version defines the parts of an ARM api-version: a table of fields for each resource. Each version has a package
// beside this one that starts from the version before it and replaces what differs. Packages of published versions do not
// change any more. The tables define the wire form only; the frontend validates values on the hub types.
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

	// AcceptsCSR is set if a request for an admin credential contains a certificate signing request of the client. Older
	// versions have no body, and the service generates the key.
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

// conditionFields returns the fields of a Condition.
func conditionFields() []shape.Field {
	return []shape.Field{shape.ReadOnly("type"), shape.ReadOnly("status"), shape.ReadOnly("lastTransitionTime"), shape.ReadOnly("reason"), shape.ReadOnly("message")}
}

// ConditionField returns the field condition of the versions before the status. A body may contain it, and no response does.
func ConditionField[S any]() shape.Field {
	return shape.FromStatus("condition", func(*S) any { return nil }).Holding(conditionFields()...)
}

// StatusField returns the field status, which contains the conditions.
func StatusField[S any](value func(status *S) any) shape.Field {
	return shape.FromStatus("status", value).Holding(shape.List("conditions", conditionFields()...))
}

// The condition types that customers see. The hub has more.
const (
	available   = "Available"
	degraded    = "Degraded"
	progressing = "Progressing"
	// logsDelivered is a condition of clusters with diagnostic settings.
	logsDelivered = "LogsDelivered"
)

// maxConditions is the most conditions that a status may contain.
const maxConditions = 10

// Conditions returns the conditions that customers see.
func Conditions(observed []hub.Condition) []Condition {
	var visible []Condition
	for _, condition := range observed {
		switch condition.Type {
		case available, degraded, progressing, logsDelivered:
			if len(visible) < maxConditions {
				visible = append(visible, Condition{
					Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
					Reason: condition.Reason, Message: condition.Message,
				})
			}
		}
	}
	return visible
}

// Status returns the observed state of a resource, or nil if nothing was observed yet.
func Status(observed []hub.Condition) any {
	visible := Conditions(observed)
	if len(visible) == 0 {
		return nil
	}
	return struct {
		Conditions []Condition `json:"conditions"`
	}{visible}
}
