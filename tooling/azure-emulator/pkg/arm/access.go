package arm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// SeedAssignment is a role assignment of the seed. It exists as long as the seed contains it.
type SeedAssignment struct {
	PrincipalID string `json:"principalId"`
	// Role is the ID of a built-in role or of a role of the seed.
	Role      string `json:"role"`
	Scope     string `json:"scope"`
	Condition string `json:"condition,omitempty"`
}

// CheckAssignments returns an error that names the first assignment of the seed that has no effect.
func (s *Server) CheckAssignments() error {
	for i, a := range s.Assignments {
		switch {
		case a.PrincipalID == "":
			return fmt.Errorf("assignments[%d].principalId of the seed is required", i)
		case s.findRole(a.Role) == nil:
			return fmt.Errorf("assignments[%d].role of the seed: there is no role with the ID %q", i, a.Role)
		case !rbac.Evaluates(a.Condition):
			return fmt.Errorf("assignments[%d].condition of the seed: the emulator does not evaluate %q", i, a.Condition)
		case !strings.HasPrefix(a.Scope, "/"):
			return fmt.Errorf("assignments[%d].scope of the seed: %q is not a resource ID or /", i, a.Scope)
		}
	}
	return nil
}

// assignment returns the assignment as clients see it. Its name is the same at each start.
func (s SeedAssignment) assignment() *assignment {
	parent := strings.TrimSuffix(s.Scope, "/")
	name := uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.ToLower(s.PrincipalID+" "+s.Role+" "+s.Scope))).String()
	return &assignment{ID: parent + "/providers/Microsoft.Authorization/roleAssignments/" + name, Name: name, Type: "Microsoft.Authorization/roleAssignments", seeded: true,
		Properties: assignmentProperties{Scope: s.Scope, RoleDefinitionID: parent + "/providers/Microsoft.Authorization/roleDefinitions/" + s.Role, PrincipalID: s.PrincipalID, PrincipalType: "ServicePrincipal", Condition: s.Condition}}
}

// Authorize implements rbac.Authorizer with the stored role assignments and those of the seed.
func (s *Server) Authorize(ctx context.Context, action rbac.Action, scope string) error {
	return s.Store.View(func(tx *store.Tx) error {
		c := &call{Server: s, tx: tx, ctx: ctx, path: &path{}}
		return c.authorize(action, scope)
	})
}

// authorize is Authorize in the transaction of a request.
func (c *call) authorize(action rbac.Action, scope string) error {
	caller := rbac.FromContext(c.ctx)
	if caller.IsEmulator() {
		return nil
	}
	if scope == "" {
		scope = "/"
	}
	for _, principal := range caller.Principals() {
		all, err := c.assignmentsOf(principal)
		if err != nil {
			return err
		}
		for _, a := range all {
			role, err := c.role(lastSegment(a.Properties.RoleDefinitionID))
			if err != nil {
				return err
			}
			if role != nil && rbac.Within(scope, a.Properties.Scope) && role.Permits(action) && action.Satisfies(a.Properties.Condition) {
				return nil
			}
		}
	}
	return &rbac.Denied{Caller: caller, Action: action, Scope: scope}
}

// assignmentsOf returns the role assignments of a principal, or of all principals if it is "".
func (c *call) assignmentsOf(principal string) ([]*assignment, error) {
	prefix := ""
	if principal != "" {
		prefix = principal + "/"
	}
	all, err := store.All[assignment](c.tx, assignments, prefix)
	if err != nil {
		return nil, err
	}
	for _, seeded := range c.Assignments {
		if principal != "" && !strings.EqualFold(seeded.PrincipalID, principal) {
			continue
		}
		all = append(all, seeded.assignment())
	}
	return all, nil
}

// findRole returns the built-in role or the role of the seed with an ID, or nil.
func (s *Server) findRole(id string) *rbac.Role {
	i := slices.IndexFunc(s.roles, func(r rbac.Role) bool { return strings.EqualFold(r.ID, id) })
	if i < 0 {
		return nil
	}
	return &s.roles[i]
}

// authorizeRequest returns a *rbac.Denied if the caller may not send the request. The status of an operation is for those who may
// read its resource. ARM decides before it reads the resource, so that an outsider does not learn what exists.
func (c *call) authorizeRequest() error {
	if c.path.operation != "" {
		var o operation
		if found, err := c.tx.Get(operations, c.path.operation, &o); err != nil || !found {
			return err
		}
		resource, err := parsePath(o.ResourceID)
		if err != nil {
			return err
		}
		return c.authorize(resource.action(http.MethodGet), resource.id)
	}
	scope := c.path.id
	if c.path.name == "" || c.path.extension {
		scope = c.path.scope
	}
	return c.authorize(c.path.action(c.method), scope)
}

// action returns the action of a request with a method.
func (p *path) action(method string) rbac.Action {
	typ := p.typ
	if strings.EqualFold(typ, groupType) {
		typ = "Microsoft.Resources/subscriptions/resourceGroups"
	}
	verb, ok := map[string]string{
		http.MethodGet: "read", http.MethodHead: "read", http.MethodPut: "write", http.MethodPatch: "write", http.MethodDelete: "delete", http.MethodPost: "action",
	}[method]
	if !ok {
		verb = "unknown"
	}
	return rbac.Action{Name: typ + "/" + verb}
}
