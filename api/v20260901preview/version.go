// Package v20260901preview is what ARM clients see of hcpmesh at api-version 2026-09-01-preview: the JSON shape of every
// resource, and the way between it and the hub types.
//
// Encoding takes a hub resource with what is known of it and gives the wire type, leaving empty objects out. Decoding
// takes a JSON body over the resource as it stands and gives the hub type, with the defaults of this version when it is
// asked for them; every malformed field is noted in the body, and none stops the reading. The package decides on form
// only: what values are acceptable is validated on the hub type.
package v20260901preview

import (
	"maps"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Version is the api-version.
const Version = "2026-09-01-preview"

// SystemData says who made and last changed a resource.
type SystemData struct {
	CreatedBy          string     `json:"createdBy,omitempty"`
	CreatedByType      string     `json:"createdByType,omitempty"`
	CreatedAt          *time.Time `json:"createdAt,omitempty"`
	LastModifiedBy     string     `json:"lastModifiedBy,omitempty"`
	LastModifiedByType string     `json:"lastModifiedByType,omitempty"`
	LastModifiedAt     *time.Time `json:"lastModifiedAt,omitempty"`
}

// Identity is the managed identity of a resource.
type Identity struct {
	Type                   string                           `json:"type,omitempty"`
	PrincipalID            string                           `json:"principalId,omitempty"`
	TenantID               string                           `json:"tenantId,omitempty"`
	UserAssignedIdentities map[string]*UserAssignedIdentity `json:"userAssignedIdentities,omitempty"`
}

// UserAssignedIdentity is one assigned identity.
type UserAssignedIdentity struct {
	ClientID    string `json:"clientId,omitempty"`
	PrincipalID string `json:"principalId,omitempty"`
}

// Status is the observed state of a resource.
type Status struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one aspect of it; its type is Available, Degraded or Progressing.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
}

// maxConditions is how many conditions a status may have.
const maxConditions = 10

// shownConditions are the condition types that this version knows.
var shownConditions = map[string]bool{"Available": true, "Degraded": true, "Progressing": true}

func encodeStatus(conditions []hub.Condition) *Status {
	var shown []Condition
	for _, condition := range conditions {
		if !shownConditions[condition.Type] || len(shown) == maxConditions {
			continue
		}
		shown = append(shown, Condition{
			Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			Reason: condition.Reason, Message: condition.Message,
		})
	}
	if len(shown) == 0 {
		return nil
	}
	return &Status{Conditions: shown}
}

func encodeSystemData(data *hub.SystemData) *SystemData {
	if data == nil {
		return nil
	}
	wireData := SystemData(*data)
	return &wireData
}

func encodeIdentity(identity *hub.Identity) *Identity {
	if identity == nil {
		return nil
	}
	encoded := &Identity{Type: identity.Type, PrincipalID: identity.PrincipalID, TenantID: identity.TenantID}
	if len(identity.UserAssigned) > 0 {
		encoded.UserAssignedIdentities = make(map[string]*UserAssignedIdentity, len(identity.UserAssigned))
		for id, assigned := range identity.UserAssigned {
			encoded.UserAssignedIdentities[id] = &UserAssignedIdentity{ClientID: assigned.ClientID, PrincipalID: assigned.PrincipalID}
		}
	}
	return encoded
}

// decodeResource reads what every tracked resource has. Read-only fields come from base.
func decodeResource(body *wire.Body, base hub.Resource) hub.Resource {
	resource := base
	resource.Location = body.String("location", "")
	if body.Has("tags") {
		resource.Tags = body.StringMap("tags")
	} else {
		resource.Tags = maps.Clone(base.Tags)
	}
	resource.Identity = decodeIdentity(body.Child("identity"), base.Identity)
	return resource
}

func decodeIdentity(o *wire.Object, base *hub.Identity) *hub.Identity {
	if o == nil {
		return nil
	}
	identity := &hub.Identity{
		Type: o.Enum("type", "", "None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned"),
	}
	known := map[string]hub.UserAssignedIdentity{}
	if base != nil {
		identity.PrincipalID, identity.TenantID = base.PrincipalID, base.TenantID
		for id, assigned := range base.UserAssigned {
			known[hub.Key(id)] = assigned
		}
	}
	o.Child("userAssignedIdentities").Each(func(id string, value *wire.Object) {
		// ARM fills these two in; a client that leaves them out does not change them.
		assigned := known[hub.Key(id)]
		assigned.ClientID = value.String("clientId", assigned.ClientID)
		assigned.PrincipalID = value.String("principalId", assigned.PrincipalID)
		if identity.UserAssigned == nil {
			identity.UserAssigned = map[string]hub.UserAssignedIdentity{}
		}
		identity.UserAssigned[id] = assigned
	})
	return identity
}

// Defaults says whether a body's absent fields take this version's defaults: they do in a PUT, not in a PATCH.
type Defaults bool

func (d Defaults) text(value string) string {
	if d {
		return value
	}
	return ""
}

func (d Defaults) number(value int32) int32 {
	if d {
		return value
	}
	return 0
}
