package azure

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// identity reads a customer's identity by its resource ID.
func (a *attempt) identity(ctx context.Context, id string) (*armmsi.Identity, error) {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return nil, fmt.Errorf("the resource ID %q of an identity is malformed", id)
	}
	identities, err := a.Clients.Identities(parsed.SubscriptionID)
	if err != nil {
		return nil, err
	}
	found, err := identities.Get(ctx, parsed.ResourceGroupName, parsed.Name, nil)
	if err != nil {
		return nil, err
	}
	if found.Properties == nil || found.Properties.PrincipalID == nil || found.Properties.ClientID == nil || *found.Properties.ClientID == "" {
		return nil, fmt.Errorf("the identity %s has no principal or no client ID", id)
	}
	return &found.Identity, nil
}

// readIdentities reads the client and principal IDs of the identities of the cluster. Until the step is done for the first
// time, it reads only those that earlier attempts did not read. The customer must create missing identities, so the error
// lists all of them.
func (a *attempt) readIdentities(ctx context.Context) error {
	type read struct {
		fleet.OperatorIdentity
		found *armmsi.Identity
		err   error
	}
	var unread []*read
	for _, i := range a.cluster.Identities() {
		if a.step.Input != "" || a.azure.ClientID(i.ID) == "" {
			unread = append(unread, &read{OperatorIdentity: i})
		}
	}
	_ = concurrently(unread, func(r *read) error {
		r.found, r.err = a.identity(ctx, r.ID)
		return nil // the others are read nevertheless
	})

	facts := map[string]string{fleet.AzureIdentitiesMissing: ""}
	a.outcome.Facts = facts
	var properties, missing []string
	var failed error
	for _, r := range unread {
		switch {
		case isNotFound(r.err):
			properties = append(properties, r.Property)
			missing = append(missing, fmt.Sprintf("the identity %s of %s does not exist", r.ID, r.Property))
		case r.err != nil:
			failed = fmt.Errorf("read the identity of %s: %w", r.Property, r.err)
		default:
			maps.Copy(facts, fleet.IdentityFacts(r.ID, *r.found.Properties.ClientID, *r.found.Properties.PrincipalID))
		}
	}
	if len(missing) > 0 {
		facts[fleet.AzureIdentitiesMissing] = strings.Join(properties, ", ")
		return fmt.Errorf("the customer must act: %s", strings.Join(missing, "; "))
	}
	if failed != nil {
		return failed
	}
	a.done()
	return nil
}

// Scopes in the customer's network on which operators need roles. Operators that are not in operatorRoles need roles only in
// the managed resource group, which the service grants.
const (
	onSubnet  = "subnet"
	onNetwork = "network"
)

// operatorRoles are the built-in roles of the operators, with the scope on which each is needed.
var operatorRoles = []struct{ operator, role, on string }{
	{"cluster-api-azure", "88366f10-ed47-4cc0-9fab-c8a06148393e", onSubnet},
	{"control-plane", "fc0c873f-45e9-4d0d-a7d1-585aab30c6ed", onNetwork},
	{"cloud-controller-manager", "a1f96423-95ce-4224-ab27-4e3dc72facd4", onSubnet},
	{"ingress", "0336e1d3-7a87-462b-b6db-342b63f7802c", onSubnet},
	{"file-csi-driver", "0d7aedc0-15fd-4a67-a412-efad370c947e", onSubnet},
	{"image-registry", "8b32b316-c2f5-4ddf-b05b-83dacd2d08b5", onNetwork},
	{"cloud-network-config", "be7a6435-15ae-4171-8f30-4a343eff9e8f", onNetwork},
}

// serviceRole is the role of the identity with which the service acts in the customer's network.
const serviceRole = "c0ff367d-66d8-445e-917c-583feb0ef0d4"

const definitions = "/providers/Microsoft.Authorization/roleDefinitions/"

// checkRoles checks that the identity of each operator has the actions of its built-in role on the scope where it needs them.
// The customer must grant missing actions, so the error lists all identities that lack one.
func (a *attempt) checkRoles(ctx context.Context) error {
	platform := a.cluster.Spec.GetPlatform()
	subnet := platform.GetSubnetId()
	network := subnet
	if i := strings.LastIndex(strings.ToLower(subnet), "/subnets/"); i >= 0 {
		network = subnet[:i]
	}
	type grant struct{ who, id, role, scope, missing string }
	var grants []*grant
	for _, r := range operatorRoles {
		scope := subnet
		if r.on == onNetwork {
			scope = network
		}
		grants = append(grants, &grant{who: "operator " + r.operator, id: platform.GetControlPlaneOperators()[r.operator], role: r.role, scope: scope})
	}
	grants = append(grants, &grant{who: "the service", id: platform.GetServiceManagedIdentity(), role: serviceRole, scope: subnet})
	grants = slices.DeleteFunc(grants, func(g *grant) bool { return g.id == "" })
	check := &roleCheck{attempt: a, known: map[string][]*armauthorization.Permission{}}
	err := concurrently(grants, func(g *grant) (err error) {
		if g.missing, err = check.missing(ctx, g.id, g.role, g.scope); err != nil {
			return fmt.Errorf("check the roles of %s: %w", g.who, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var missing []string
	for _, g := range grants {
		if g.missing != "" {
			missing = append(missing, fmt.Sprintf("the identity of %s lacks the action %s, which role %s on %s would grant", g.who, g.missing, g.role, g.scope))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the customer must act: %s", strings.Join(missing, "; "))
	}
	a.done()
	return nil
}

// roleCheck keeps the role definitions that it has read. Its methods are safe for concurrent use.
type roleCheck struct {
	*attempt
	mu    sync.Mutex
	known map[string][]*armauthorization.Permission
}

func (c *roleCheck) permissions(ctx context.Context, role string) ([]*armauthorization.Permission, error) {
	role = strings.ToLower(role)
	c.mu.Lock()
	p, ok := c.known[role]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	client, err := c.Clients.RoleDefinitions()
	if err != nil {
		return nil, err
	}
	found, err := client.GetByID(ctx, role, nil)
	if err != nil {
		return nil, fmt.Errorf("read the role definition %s: %w", role, err)
	}
	if found.Properties != nil {
		p = found.Properties.Permissions
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[role] = p
	return p, nil
}

// missing returns the first action of a role that an identity lacks on a scope, and "" when it has all of them.
func (c *roleCheck) missing(ctx context.Context, id, role, scope string) (string, error) {
	parsed, err := arm.ParseResourceID(scope)
	if err != nil {
		return "", err
	}
	// The service may read in the subscriptions of customers, and not at the scope of the tenant.
	wanted, err := c.permissions(ctx, "/subscriptions/"+parsed.SubscriptionID+definitions+role)
	if err != nil {
		return "", err
	}
	assignments, err := c.Clients.RoleAssignments(parsed.SubscriptionID)
	if err != nil {
		return "", err
	}
	var granted []*armauthorization.Permission
	// The SDK does not encode the filter, and HTTP/1.1 permits no space in the URL.
	pager := assignments.NewListForScopePager(scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{
		Filter: to.Ptr(url.PathEscape("atScope() and assignedTo('" + c.azure.PrincipalID(id) + "')"))})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return "", err
		}
		for _, a := range page.Value {
			if a.Properties == nil || a.Properties.RoleDefinitionID == nil {
				continue
			}
			permissions, err := c.permissions(ctx, *a.Properties.RoleDefinitionID)
			if err != nil {
				return "", err
			}
			granted = append(granted, permissions...)
		}
	}
	for _, p := range wanted {
		for _, action := range p.Actions {
			if !slices.ContainsFunc(granted, func(g *armauthorization.Permission) bool { return allows(g, *action) }) {
				return *action, nil
			}
		}
	}
	return "", nil
}

// allows reports whether a permission grants an action.
func allows(p *armauthorization.Permission, action string) bool {
	covers := func(patterns []*string) bool {
		return slices.ContainsFunc(patterns, func(pattern *string) bool { return pattern != nil && matches(*pattern, action) })
	}
	return covers(p.Actions) && !covers(p.NotActions)
}

// matches compares an action with a pattern, ignoring case. An asterisk in the pattern matches any text.
func matches(pattern, action string) bool {
	pattern, action = strings.ToLower(pattern), strings.ToLower(action)
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == action
	}
	rest, ok := strings.CutPrefix(action, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
