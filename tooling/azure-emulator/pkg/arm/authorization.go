package arm

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// assignments is the bucket of role assignments, by <principal><scope>/<name>.
const assignments = "assignments"

// authorizationVersions lists the supported api-versions.
var authorizationVersions = []string{"2022-04-01"}

// assignment is the assignment of a role on a scope to a principal.
type assignment struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	Type       string               `json:"type"`
	Properties assignmentProperties `json:"properties"`
	// seeded marks an assignment of the seed, which clients cannot delete.
	seeded bool
}

type assignmentProperties struct {
	Scope            string `json:"scope"`
	RoleDefinitionID string `json:"roleDefinitionId"`
	PrincipalID      string `json:"principalId"`
	PrincipalType    string `json:"principalType,omitempty"`
	Condition        string `json:"condition,omitempty"`
	ConditionVersion string `json:"conditionVersion,omitempty"`
}

// routeAuthorization executes a request for a role definition or a role assignment.
func (c *call) routeAuthorization() (*response, error) {
	if err := c.checkVersion("Microsoft.Authorization", authorizationVersions); err != nil {
		return nil, err
	}
	kind := c.path.lowerType[len("microsoft.authorization/"):]
	switch {
	case kind == "roledefinitions" && c.path.name != "" && c.method == http.MethodGet:
		return c.roleDefinition()
	case kind == "roledefinitions" && c.path.name != "" && c.method == http.MethodPut:
		return c.putRole()
	case kind == "roledefinitions" && c.path.name != "" && c.method == http.MethodDelete:
		return c.deleteRole()
	case kind == "roleassignments" && c.path.name == "" && c.method == http.MethodGet:
		return c.listAssignments()
	case kind == "roleassignments" && c.path.name != "":
		switch c.method {
		case http.MethodGet:
			a, err := c.assignment()
			if err == nil && a == nil {
				err = &Error{Status: http.StatusNotFound, Code: "RoleAssignmentNotFound", Message: fmt.Sprintf("The role assignment '%s' is not found.", c.path.name)}
			}
			return &response{status: http.StatusOK, body: a}, err
		case http.MethodPut:
			return c.putAssignment()
		case http.MethodDelete:
			a, err := c.assignment()
			if err != nil || a == nil {
				return &response{status: http.StatusNoContent}, err
			}
			if a.seeded {
				return nil, &Error{Status: http.StatusConflict, Code: "RoleAssignmentOfSeed", Message: fmt.Sprintf("The role assignment '%s' belongs to the emulator's seed and cannot be deleted.", a.Name)}
			}
			return &response{status: http.StatusOK, body: a}, c.tx.Delete(assignments, a.key())
		}
	}
	return nil, c.methodNotEmulated()
}

// key returns the key of the assignment in the store.
func (a *assignment) key() string {
	return strings.ToLower(a.Properties.PrincipalID) + a.Properties.Scope + "/" + strings.ToLower(a.Name)
}

// assignment returns the requested role assignment, or nil if it does not exist.
func (c *call) assignment() (*assignment, error) {
	all, err := c.assignmentsOf("")
	for _, a := range all {
		if strings.EqualFold(a.ID, c.path.id) {
			return a, err
		}
	}
	return nil, err
}

// putAssignment creates a role assignment.
func (c *call) putAssignment() (*response, error) {
	a := &assignment{}
	if err := decode(c.body, a); err != nil {
		return nil, err
	}
	if _, err := uuid.Parse(c.path.name); err != nil {
		return nil, badRequest("InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.", c.path.name)
	}
	if role, err := c.role(lastSegment(a.Properties.RoleDefinitionID)); err != nil {
		return nil, err
	} else if role == nil {
		return nil, badRequest("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", lastSegment(a.Properties.RoleDefinitionID))
	}
	if !rbac.Evaluates(a.Properties.Condition) {
		return nil, badRequest("InvalidRoleAssignmentCondition", "The emulator does not evaluate the condition '%s'.", a.Properties.Condition)
	}
	var owner string
	found, err := c.tx.Get(principals, strings.ToLower(a.Properties.PrincipalID), &owner)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, badRequest("PrincipalNotFound", "Principal %s does not exist in the directory.", a.Properties.PrincipalID)
	}
	a.ID, a.Name, a.Type, a.Properties.Scope = c.path.id, c.path.name, "Microsoft.Authorization/roleAssignments", c.path.scope
	if old, err := c.assignment(); err != nil || old != nil {
		return c.sameAssignment(old, a, err)
	}
	others, err := c.assignmentsOf(strings.ToLower(a.Properties.PrincipalID))
	if err != nil {
		return nil, err
	}
	for _, o := range others {
		if strings.EqualFold(o.Properties.Scope, a.Properties.Scope) && lastSegment(o.Properties.RoleDefinitionID) == lastSegment(a.Properties.RoleDefinitionID) {
			return nil, &Error{Status: http.StatusConflict, Code: "RoleAssignmentExists", Message: "The role assignment already exists. The ID of the existing role assignment is " + strings.ReplaceAll(o.Name, "-", "") + "."}
		}
	}
	return &response{status: http.StatusCreated, body: a}, c.tx.Put(assignments, a.key(), a)
}

// sameAssignment responds to a write of an assignment that exists. Its condition can change, but neither its principal nor its role.
func (c *call) sameAssignment(old, wanted *assignment, err error) (*response, error) {
	switch {
	case err != nil:
		return nil, err
	case !strings.EqualFold(old.Properties.PrincipalID, wanted.Properties.PrincipalID), lastSegment(old.Properties.RoleDefinitionID) != lastSegment(wanted.Properties.RoleDefinitionID):
		return nil, badRequest("RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
	case old.seeded || old.Properties.Condition == wanted.Properties.Condition:
		return &response{status: http.StatusOK, body: old}, nil
	}
	return &response{status: http.StatusOK, body: wanted}, c.tx.Put(assignments, wanted.key(), wanted)
}

var (
	filterPrincipal = regexp.MustCompile(`(?i)principalId\s+eq\s+'([^']+)'`)
	filterAssigned  = regexp.MustCompile(`(?i)assignedTo\('([^']+)'\)`)
)

// listAssignments responds with the assignments at, above and below the scope. With the filter atScope() it omits those
// below.
func (c *call) listAssignments() (*response, error) {
	filter := c.query.Get("$filter")
	principal := ""
	for _, form := range []*regexp.Regexp{filterPrincipal, filterAssigned} {
		if found := form.FindStringSubmatch(filter); found != nil {
			principal = strings.ToLower(found[1])
		}
	}
	atScope := strings.Contains(strings.ToLower(filter), "atscope()")
	if filter != "" && principal == "" && !atScope {
		return nil, badRequest("UnsupportedQuery", "The filter '%s' is not supported.", filter)
	}
	all, err := c.assignmentsOf(principal)
	if err != nil {
		return nil, err
	}
	value := []any{}
	for _, a := range all {
		if rbac.Within(c.path.scope, a.Properties.Scope) || !atScope && rbac.Within(a.Properties.Scope, c.path.scope) {
			value = append(value, a)
		}
	}
	if assumed, err := c.assumedAssignment(principal); err != nil {
		return nil, err
	} else if assumed != nil {
		value = append(value, assumed)
	}
	return &response{status: http.StatusOK, body: map[string]any{"value": value}}, nil
}

// assumedAssignment returns the role of an assumed identity: it owns its subscription. It is nil for other principals.
func (c *call) assumedAssignment(principal string) (*assignment, error) {
	if !c.AssumeCustomers || principal == "" {
		return nil, nil
	}
	var id string
	if found, err := c.tx.Get(principals, principal, &id); err != nil || !found {
		return nil, err
	}
	identity, err := c.find(id)
	if err != nil || identity == nil || !identity.Assumed {
		return nil, err
	}
	scope := "/subscriptions/" + c.path.subscription
	return &assignment{ID: scope + "/providers/Microsoft.Authorization/roleAssignments/" + principal, Name: principal, Type: "Microsoft.Authorization/roleAssignments",
		Properties: assignmentProperties{Scope: scope, RoleDefinitionID: scope + "/providers/Microsoft.Authorization/roleDefinitions/" + OwnerRole, PrincipalID: principal, PrincipalType: "ServicePrincipal"}}, nil
}

// lastSegment returns the last segment of an ID in lower case.
func lastSegment(id string) string { return strings.ToLower(id[strings.LastIndex(id, "/")+1:]) }
