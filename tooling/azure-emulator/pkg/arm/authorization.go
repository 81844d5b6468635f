package arm

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// assignments are kept by principal and scope: <principal>/<lower-case id>.
const assignments = "assignments"

var authorizationVersions = []string{"2022-04-01"}

// assignment is a role that a principal has on a scope.
type assignment struct {
	ID         string               `json:"id"`
	Name       string               `json:"name"`
	Type       string               `json:"type"`
	Properties assignmentProperties `json:"properties"`
}

type assignmentProperties struct {
	Scope            string `json:"scope"`
	RoleDefinitionID string `json:"roleDefinitionId"`
	PrincipalID      string `json:"principalId"`
	PrincipalType    string `json:"principalType,omitempty"`
}

func (c *call) authorization() (*answer, error) {
	if err := c.checkVersion("Microsoft.Authorization", authorizationVersions); err != nil {
		return nil, err
	}
	kind := c.path.lowerType[len("microsoft.authorization/"):]
	switch {
	case kind == "roledefinitions" && c.method == http.MethodGet:
		return c.roleDefinitions()
	case kind == "roleassignments" && c.path.name == "" && c.method == http.MethodGet:
		return c.listAssignments()
	case kind == "roleassignments" && c.path.name != "":
		switch c.method {
		case http.MethodGet:
			a, err := c.assignment()
			if err == nil && a == nil {
				err = &Error{Status: http.StatusNotFound, Code: "RoleAssignmentNotFound", Message: fmt.Sprintf("The role assignment '%s' is not found.", c.path.name)}
			}
			return &answer{status: http.StatusOK, body: a}, err
		case http.MethodPut:
			return c.putAssignment()
		case http.MethodDelete:
			a, err := c.assignment()
			if err != nil || a == nil {
				return &answer{status: http.StatusNoContent}, err
			}
			return &answer{status: http.StatusOK, body: a}, c.tx.Delete(assignments, a.key())
		}
	}
	return nil, c.notAllowed()
}

func (a *assignment) key() string {
	return strings.ToLower(a.Properties.PrincipalID) + a.Properties.Scope + "/" + strings.ToLower(a.Name)
}

// assignment finds the one that the path names; nil when there is none.
func (c *call) assignment() (*assignment, error) {
	all, err := store.All[assignment](c.tx, assignments, "")
	for _, a := range all {
		if strings.EqualFold(a.ID, c.path.id) {
			return a, err
		}
	}
	return nil, err
}

func (c *call) putAssignment() (*answer, error) {
	a := &assignment{}
	if err := decode(c.body, a); err != nil {
		return nil, err
	}
	if _, err := uuid.Parse(c.path.name); err != nil {
		return nil, badRequest("InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.", c.path.name)
	}
	if definition(lastOf(a.Properties.RoleDefinitionID)) == nil {
		return nil, badRequest("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", lastOf(a.Properties.RoleDefinitionID))
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
	others, err := store.All[assignment](c.tx, assignments, strings.ToLower(a.Properties.PrincipalID)+"/")
	if err != nil {
		return nil, err
	}
	for _, o := range others {
		if strings.EqualFold(o.Properties.Scope, a.Properties.Scope) && lastOf(o.Properties.RoleDefinitionID) == lastOf(a.Properties.RoleDefinitionID) {
			return nil, &Error{Status: http.StatusConflict, Code: "RoleAssignmentExists", Message: "The role assignment already exists. The ID of the existing role assignment is " + strings.ReplaceAll(o.Name, "-", "") + "."}
		}
	}
	return &answer{status: http.StatusCreated, body: a}, c.tx.Put(assignments, a.key(), a)
}

var (
	filterPrincipal = regexp.MustCompile(`(?i)principalId\s+eq\s+'([^']+)'`)
	filterAssigned  = regexp.MustCompile(`(?i)assignedTo\('([^']+)'\)`)
	filterRoleName  = regexp.MustCompile(`(?i)^roleName\s+eq\s+'([^']+)'$`)
)

// listAssignments lists those at, above and below the scope; with atScope() those at it and above.
func (c *call) listAssignments() (*answer, error) {
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
	prefix := ""
	if principal != "" {
		prefix = principal + "/"
	}
	all, err := store.All[assignment](c.tx, assignments, prefix)
	if err != nil {
		return nil, err
	}
	value := []any{}
	for _, a := range all {
		if within(c.path.scope, a.Properties.Scope) || !atScope && within(a.Properties.Scope, c.path.scope) {
			value = append(value, a)
		}
	}
	if given, err := c.assumedAssignment(principal); err != nil {
		return nil, err
	} else if given != nil {
		value = append(value, given)
	}
	return &answer{status: http.StatusOK, body: map[string]any{"value": value}}, nil
}

// assumedAssignment is the role of an assumed identity: all of its subscription is open to it.
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
		Properties: assignmentProperties{Scope: scope, RoleDefinitionID: scope + "/providers/Microsoft.Authorization/roleDefinitions/" + ownerRole, PrincipalID: principal, PrincipalType: "ServicePrincipal"}}, nil
}

// within says whether a scope is at or below another.
func within(inner, outer string) bool {
	inner, outer = strings.ToLower(inner), strings.ToLower(outer)
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}

func lastOf(id string) string { return strings.ToLower(id[strings.LastIndex(id, "/")+1:]) }
