package arm

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// customRoles is the bucket of the role definitions that clients create, by lower-case ID of the role.
const customRoles = "roles"

// roleDefinition is a role with the scopes in which it can be assigned.
type roleDefinition struct {
	rbac.Role
	Scopes []string `json:"assignableScopes"`
}

// role returns the role definition with an ID, or nil.
func (c *call) role(id string) (*roleDefinition, error) {
	if r := c.findRole(id); r != nil {
		return &roleDefinition{*r, []string{"/"}}, nil
	}
	var custom roleDefinition
	if found, err := c.tx.Get(customRoles, strings.ToLower(id), &custom); err != nil || !found {
		return nil, err
	}
	return &custom, nil
}

// allRoles returns all role definitions.
func (c *call) allRoles() ([]*roleDefinition, error) {
	var all []*roleDefinition
	for _, r := range c.roles {
		all = append(all, &roleDefinition{r, []string{"/"}})
	}
	customs, err := store.All[roleDefinition](c.tx, customRoles, "")
	return append(all, customs...), err
}

// putRole creates or replaces a custom role definition.
func (c *call) putRole() (*response, error) {
	var body struct {
		Properties struct {
			Name        string      `json:"roleName"`
			Permissions []rbac.Role `json:"permissions"` // the lists of actions have the same names
			Scopes      []string    `json:"assignableScopes"`
		} `json:"properties"`
	}
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	wanted := body.Properties
	if _, err := uuid.Parse(c.path.name); err != nil {
		return nil, badRequest("InvalidRoleDefinitionId", "The role definition ID '%s' is not valid. The role definition ID must be a GUID.", c.path.name)
	}
	if c.findRole(c.path.name) != nil {
		return nil, badRequest("RoleDefinitionNotPermitted", "The role definition '%s' is built in and cannot be changed.", c.path.name)
	}
	if wanted.Name == "" || len(wanted.Permissions) != 1 || len(wanted.Scopes) == 0 {
		return nil, badRequest("InvalidRoleDefinition", "A custom role definition has a name, one set of permissions and at least one assignable scope.")
	}
	all, err := c.allRoles()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if strings.EqualFold(r.Name, wanted.Name) && !strings.EqualFold(r.ID, c.path.name) {
			return nil, &Error{Status: http.StatusConflict, Code: "RoleDefinitionWithSameNameExists", Message: fmt.Sprintf("A custom role with the name '%s' exists already. Use a different name.", wanted.Name)}
		}
	}
	custom := roleDefinition{Role: wanted.Permissions[0], Scopes: wanted.Scopes}
	custom.ID, custom.Name = c.path.name, wanted.Name
	return &response{status: http.StatusCreated, body: custom.representation(c.path.scope)}, c.tx.Put(customRoles, strings.ToLower(custom.ID), custom)
}

// deleteRole deletes a custom role definition without assignments.
func (c *call) deleteRole() (*response, error) {
	role, err := c.role(c.path.name)
	if err != nil || role == nil {
		return &response{status: http.StatusNoContent}, err
	}
	if c.findRole(c.path.name) != nil {
		return nil, badRequest("RoleDefinitionNotPermitted", "The role definition '%s' is built in and cannot be deleted.", c.path.name)
	}
	all, err := c.assignmentsOf("")
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if lastSegment(a.Properties.RoleDefinitionID) == strings.ToLower(c.path.name) {
			return nil, &Error{Status: http.StatusConflict, Code: "RoleDefinitionHasAssignments", Message: "There are existing role assignments referencing role (code: RoleDefinitionHasAssignments)."}
		}
	}
	return &response{status: http.StatusOK, body: role.representation(c.path.scope)}, c.tx.Delete(customRoles, strings.ToLower(c.path.name))
}
