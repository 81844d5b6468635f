package arm

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// envelope holds the fields of a resource beside its properties, which Resource Manager defines for all types.
type envelope struct {
	SKU      map[string]any `json:"sku,omitempty"`
	Kind     string         `json:"kind,omitempty"`
	Zones    []string       `json:"zones,omitempty"`
	Identity *identity      `json:"identity,omitempty"`
}

// identity is the managed identity of a resource.
type identity struct {
	Type        string                    `json:"type"`
	TenantID    string                    `json:"tenantId,omitempty"`
	PrincipalID string                    `json:"principalId,omitempty"`
	Users       map[string]map[string]any `json:"userAssignedIdentities,omitempty"`
}

// topFields lists the fields that Resource Manager accepts in a resource.
var topFields = []string{"id", "name", "type", "location", "tags", "properties", "sku", "kind", "zones", "identity", "etag", "managedBy", "systemData"}

// wanted returns the resource of the request's body. A type of the catalogue has the fields of Resource Manager and no others.
func (c *call) wanted(k *resourceType) (*Resource, error) {
	wanted := &Resource{}
	if len(c.body) > 0 {
		if err := decode(c.body, wanted); err != nil {
			return nil, err
		}
	}
	if k.stored == nil {
		wanted.envelope = envelope{}
		return wanted, nil
	}
	if len(c.body) == 0 {
		return nil, badRequest("MissingRequestBody", "The request body is missing.")
	}
	var fields map[string]json.RawMessage
	if err := decode(c.body, &fields); err != nil {
		return nil, err
	}
	for name := range fields {
		if !slices.Contains(topFields, name) {
			return nil, badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: 'Could not find member '%s' on object of type 'ResourceDefinition'.", name)
		}
	}
	return wanted, nil
}

// setIdentity assigns principals to the identities of a resource. A system-assigned identity keeps its principal as long as the
// resource has one.
func (c *call) setIdentity(old, wanted *Resource) error {
	if wanted.Identity == nil || strings.EqualFold(wanted.Identity.Type, "None") {
		wanted.Identity = nil
		return c.forgetIdentity(old)
	}
	for _, part := range strings.Split(wanted.Identity.Type, ",") {
		switch strings.ToLower(strings.TrimSpace(part)) {
		case "systemassigned":
			if err := c.setSystemIdentity(old, wanted); err != nil {
				return err
			}
		case "userassigned":
			if err := c.setUserIdentities(wanted.Identity); err != nil {
				return err
			}
		default:
			return badRequest("InvalidIdentityType", "The identity type '%s' is not supported.", wanted.Identity.Type)
		}
	}
	if wanted.Identity.PrincipalID == "" {
		return c.forgetIdentity(old)
	}
	return nil
}

// setSystemIdentity assigns a principal to a system-assigned identity.
func (c *call) setSystemIdentity(old, wanted *Resource) error {
	principal := uuid.NewString()
	if old != nil && old.Identity != nil && old.Identity.PrincipalID != "" {
		principal = old.Identity.PrincipalID
	}
	wanted.Identity.TenantID, wanted.Identity.PrincipalID = homeTenant, principal
	return c.tx.Put(principals, principal, wanted.ID)
}

// setUserIdentities adds the principals of user-assigned identities, which must exist.
func (c *call) setUserIdentities(i *identity) error {
	if len(i.Users) == 0 {
		return badRequest("InvalidIdentityValues", "Invalid value for the identities: the type '%s' needs the property 'userAssignedIdentities'.", i.Type)
	}
	for id := range i.Users {
		user, err := c.find(id)
		if err != nil {
			return err
		}
		if user == nil || typeKeyOf(user) != strings.ToLower(identityType) {
			return &Error{Status: http.StatusBadRequest, Code: "FailedIdentityOperation", Message: "Identity operation failed with error 'Failed to perform resource identity operation: the identity '" + id + "' was not found'."}
		}
		i.Users[id] = map[string]any{"principalId": user.Properties["principalId"], "clientId": user.Properties["clientId"]}
	}
	return nil
}

// forgetIdentity removes the principal of a resource's system-assigned identity.
func (c *call) forgetIdentity(r *Resource) error {
	if r == nil || r.Identity == nil || r.Identity.PrincipalID == "" {
		return nil
	}
	return c.tx.Delete(principals, r.Identity.PrincipalID)
}
