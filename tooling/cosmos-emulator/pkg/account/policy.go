package account

import (
	"fmt"
	"slices"
	"strings"
)

// Action is a data action.
type Action string

// The data actions of Cosmos DB for NoSQL.
const (
	ReadMetadata           Action = account + "readMetadata"
	ExecuteQuery           Action = container + "executeQuery"
	ReadChangeFeed         Action = container + "readChangeFeed"
	ExecuteStoredProcedure Action = container + "executeStoredProcedure"
	ManageConflicts        Action = container + "manageConflicts"
	CreateItem             Action = item + "create"
	ReadItem               Action = item + "read"
	ReplaceItem            Action = item + "replace"
	UpsertItem             Action = item + "upsert"
	DeleteItem             Action = item + "delete"
)

const (
	account   = "Microsoft.DocumentDB/databaseAccounts/"
	container = account + "sqlDatabases/containers/"
	item      = container + "items/"
)

// Actions returns all data actions.
func Actions() []Action {
	return []Action{ReadMetadata, ExecuteQuery, ReadChangeFeed, ExecuteStoredProcedure, ManageConflicts, CreateItem, ReadItem, ReplaceItem, UpsertItem, DeleteItem}
}

// The IDs of the built-in role definitions.
const (
	BuiltInDataReader      = "00000000-0000-0000-0000-000000000001"
	BuiltInDataContributor = "00000000-0000-0000-0000-000000000002"
)

// RoleDefinition is a named list of data actions.
type RoleDefinition struct {
	// ID is a UUID.
	ID       string `json:"id"`
	RoleName string `json:"roleName"`
	// AssignableScopes are the scopes at and below which the definition may be assigned; empty means the account.
	AssignableScopes []string `json:"assignableScopes,omitempty"`
	// DataActions are data actions, or all those below a path that ends in /*.
	DataActions []string `json:"dataActions"`
}

// RoleAssignment gives a role definition to a principal at a scope.
type RoleAssignment struct {
	RoleDefinitionID string `json:"roleDefinitionId"`
	// PrincipalID is the object ID of a user, a group or a service principal.
	PrincipalID string `json:"principalId"`
	// Scope is /, /dbs/DATABASE or /dbs/DATABASE/colls/CONTAINER.
	Scope string `json:"scope"`
}

// Policy is the role definitions and assignments of an account. It is immutable.
type Policy struct {
	grants map[string][]grant // by principal in lower case
}

// grant is an assignment with the actions of its definition.
type grant struct {
	scope   Scope
	actions map[Action]bool
}

// newPolicy returns a policy with the built-in definitions, other definitions and assignments. The error names the field that
// is invalid.
func newPolicy(definitions []RoleDefinition, assignments []RoleAssignment) (*Policy, error) {
	known := map[string]*compiledRole{}
	for i, definition := range append(builtIn(), definitions...) {
		role, err := compile(definition)
		if err != nil {
			return nil, fmt.Errorf("roleDefinitions[%d].%w", i-len(builtIn()), err)
		}
		id := strings.ToLower(definition.ID)
		if known[id] != nil {
			return nil, fmt.Errorf("roleDefinitions[%d].id: %s is the ID of another definition", i-len(builtIn()), definition.ID)
		}
		known[id] = role
	}
	p := &Policy{grants: map[string][]grant{}}
	for i, assignment := range assignments {
		role := known[strings.ToLower(assignment.RoleDefinitionID)]
		if role == nil {
			return nil, fmt.Errorf("roleAssignments[%d].roleDefinitionId: there is no definition %q", i, assignment.RoleDefinitionID)
		}
		if assignment.PrincipalID == "" {
			return nil, fmt.Errorf("roleAssignments[%d].principalId is required", i)
		}
		scope, err := ParseScope(assignment.Scope)
		if err != nil {
			return nil, fmt.Errorf("roleAssignments[%d].scope: %w", i, err)
		}
		if !slices.ContainsFunc(role.scopes, func(s Scope) bool { return s.contains(scope) }) {
			return nil, fmt.Errorf("roleAssignments[%d].scope: %s is not below the definition's assignableScopes", i, assignment.Scope)
		}
		id := strings.ToLower(assignment.PrincipalID)
		p.grants[id] = append(p.grants[id], grant{scope, role.actions})
	}
	return p, nil
}

// Permissions are the rights of a principal and its groups.
type Permissions []grant

// Of returns the permissions of a principal with groups.
func (p *Policy) Of(objectID string, groups []string) Permissions {
	permissions := slices.Clone(p.grants[strings.ToLower(objectID)])
	for _, group := range groups {
		permissions = append(permissions, p.grants[strings.ToLower(group)]...)
	}
	return permissions
}

// Allow reports whether an action is allowed at a scope.
func (p Permissions) Allow(action Action, at Scope) bool {
	for _, g := range p {
		if g.actions[action] && g.scope.contains(at) {
			return true
		}
	}
	return false
}

// Reach reports whether any action is allowed at a scope.
func (p Permissions) Reach(at Scope) bool {
	return slices.ContainsFunc(p, func(g grant) bool { return g.scope.contains(at) })
}

// compiledRole is a valid role definition.
type compiledRole struct {
	scopes  []Scope
	actions map[Action]bool
}

// compile returns the compiled definition. The error begins with the name of the invalid field.
func compile(definition RoleDefinition) (*compiledRole, error) {
	role := &compiledRole{actions: map[Action]bool{}}
	if definition.ID == "" {
		return nil, fmt.Errorf("id is required")
	}
	if len(definition.DataActions) == 0 {
		return nil, fmt.Errorf("dataActions is required")
	}
	for i, pattern := range definition.DataActions {
		matched := false
		for _, action := range Actions() {
			if matches(pattern, action) {
				role.actions[action], matched = true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("dataActions[%d]: %q is not a data action of Cosmos DB for NoSQL", i, pattern)
		}
	}
	if len(definition.AssignableScopes) == 0 {
		role.scopes = []Scope{{}}
	}
	for i, text := range definition.AssignableScopes {
		scope, err := ParseScope(text)
		if err != nil {
			return nil, fmt.Errorf("assignableScopes[%d]: %w", i, err)
		}
		role.scopes = append(role.scopes, scope)
	}
	return role, nil
}

// matches reports whether a pattern is an action, or ends in * and matches the action's last segment.
func matches(pattern string, action Action) bool {
	prefix, wildcard := strings.CutSuffix(pattern, "/*")
	if !wildcard {
		return strings.EqualFold(pattern, string(action))
	}
	// A * matches one segment: containers/* does not include containers/items/create.
	last := strings.LastIndexByte(string(action), '/')
	return prefix+"/" != account && strings.EqualFold(prefix, string(action)[:last])
}

// builtIn returns the built-in role definitions.
func builtIn() []RoleDefinition {
	return []RoleDefinition{
		{ID: BuiltInDataReader, RoleName: "Cosmos DB Built-in Data Reader",
			DataActions: []string{string(ReadMetadata), string(ReadItem), string(ExecuteQuery), string(ReadChangeFeed)}},
		{ID: BuiltInDataContributor, RoleName: "Cosmos DB Built-in Data Contributor",
			DataActions: []string{string(ReadMetadata), container + "*", item + "*"}},
	}
}
