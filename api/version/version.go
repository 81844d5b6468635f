// Package version defines the ARM api-versions: a table of fields for each resource. Each version has a file that starts from
// the version before it and replaces what differs. Files of published versions do not change any more. The tables define the
// wire form only; the frontend validates values on the hub types.
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

// All returns the api-versions, the oldest first.
func All() []Version {
	return []Version{v20240610preview(), v20251223preview(), v20260630preview(), v20260901preview()}
}

// Newest returns the newest api-version.
func Newest() Version { return v20260901preview() }

// condition is one aspect of a resource's observed state.
type condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
}

// conditionFields returns the fields of a condition.
func conditionFields() []shape.Field {
	return []shape.Field{shape.ReadOnly("type"), shape.ReadOnly("status"), shape.ReadOnly("lastTransitionTime"), shape.ReadOnly("reason"), shape.ReadOnly("message")}
}

// conditionField returns the field condition of the versions before the status. A body may contain it, and no response does.
func conditionField[S any]() shape.Field {
	return shape.FromStatus("condition", func(*S) any { return nil }).Holding(conditionFields()...)
}

// statusField returns the field status, which contains the conditions.
func statusField[S any](value func(status *S) any) shape.Field {
	return shape.FromStatus("status", value).Holding(shape.List("conditions", conditionFields()...))
}

// The condition types that customers see. The hub has more.
const (
	available   = "Available"
	degraded    = "Degraded"
	progressing = "Progressing"
	// logsDelivered is a condition of clusters with diagnostic settings.
	logsDelivered = "LogsDelivered"
	// requirementsValid is a condition of node pools.
	requirementsValid = "RequirementsValid"
)

// maxConditions is the most conditions that a status may contain.
const maxConditions = 10

// conditions returns the conditions that customers see.
func conditions(observed []hub.Condition) []condition {
	var visible []condition
	for _, c := range observed {
		switch c.Type {
		case available, degraded, progressing, logsDelivered, requirementsValid:
			if len(visible) < maxConditions {
				visible = append(visible, condition{
					Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
					Reason: c.Reason, Message: c.Message,
				})
			}
		}
	}
	return visible
}

// status returns the observed state of a resource, or nil if nothing was observed yet.
func status(observed []hub.Condition) any {
	visible := conditions(observed)
	if len(visible) == 0 {
		return nil
	}
	return struct {
		Conditions []condition `json:"conditions"`
	}{visible}
}
