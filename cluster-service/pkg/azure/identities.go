package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
)

// identity finds a customer's identity by its ARM id.
func (a *attempt) identity(ctx context.Context, id string) (*armmsi.Identity, error) {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return nil, fmt.Errorf("the identity's id %q is malformed", id)
	}
	identities, err := a.Clients.Identities(parsed.SubscriptionID)
	if err != nil {
		return nil, err
	}
	found, err := identities.Get(ctx, parsed.ResourceGroupName, parsed.Name, nil)
	if err != nil {
		return nil, err
	}
	if found.Properties == nil || found.Properties.PrincipalID == nil {
		return nil, fmt.Errorf("the identity %s has no principal", id)
	}
	return &found.Identity, nil
}

// scopes are where the operators work in the customer's network. Those that are not named here need roles in the managed
// resource group alone, of which the service takes care.
const (
	onSubnet  = "subnet"
	onNetwork = "network"
)

// operatorRoles are the built-in roles of the operators, and where they are needed.
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

// checkRoles finds out whether the identities of the operators may do what the built-in role of each may, where it is
// needed. What is missing the customer must grant: everything that is missing is said at once.
func (a *attempt) checkRoles(ctx context.Context) error {
	platform := a.cluster.Spec.GetPlatform()
	subnet := platform.GetSubnetId()
	network := subnet
	if i := strings.LastIndex(strings.ToLower(subnet), "/subnets/"); i >= 0 {
		network = subnet[:i]
	}
	check := &roleCheck{attempt: a, known: map[string][]*armauthorization.Permission{}}
	var missing []string
	look := func(who, id, role, on string) error {
		if id == "" {
			return nil
		}
		scope := subnet
		if on == onNetwork {
			scope = network
		}
		lack, err := check.missing(ctx, id, role, scope)
		if gone(err) {
			missing = append(missing, fmt.Sprintf("the identity of %s, %s, is not there", who, id))
			return nil
		}
		if err != nil {
			return fmt.Errorf("checking the roles of %s: %w", who, err)
		}
		if lack != "" {
			missing = append(missing, fmt.Sprintf("the identity of %s lacks %s, which role %s on %s would give it", who, lack, role, scope))
		}
		return nil
	}
	for _, r := range operatorRoles {
		if err := look("operator "+r.operator, platform.GetControlPlaneOperators()[r.operator], r.role, r.on); err != nil {
			return err
		}
	}
	if err := look("the service", platform.GetServiceManagedIdentity(), serviceRole, onSubnet); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the customer must act: %s", strings.Join(missing, "; "))
	}
	a.done()
	return nil
}

// roleCheck reads each role definition once.
type roleCheck struct {
	*attempt
	known map[string][]*armauthorization.Permission
}

func (c *roleCheck) permissions(ctx context.Context, role string) ([]*armauthorization.Permission, error) {
	role = strings.ToLower(role)
	if p, ok := c.known[role]; ok {
		return p, nil
	}
	client, err := c.Clients.RoleDefinitions()
	if err != nil {
		return nil, err
	}
	found, err := client.GetByID(ctx, role, nil)
	if err != nil {
		// Not an identity that is gone.
		return nil, fmt.Errorf("reading the role definition %s: %s", role, describe(err))
	}
	var p []*armauthorization.Permission
	if found.Properties != nil {
		p = found.Properties.Permissions
	}
	c.known[role] = p
	return p, nil
}

// missing is the first action of a role that an identity may not take on a scope; empty when it may take all.
func (c *roleCheck) missing(ctx context.Context, id, role, scope string) (string, error) {
	identity, err := c.identity(ctx, id)
	if err != nil {
		return "", err
	}
	wanted, err := c.permissions(ctx, definitions+role)
	if err != nil {
		return "", err
	}
	parsed, err := arm.ParseResourceID(scope)
	if err != nil {
		return "", err
	}
	assignments, err := c.Clients.RoleAssignments(parsed.SubscriptionID)
	if err != nil {
		return "", err
	}
	var granted []*armauthorization.Permission
	pager := assignments.NewListForScopePager(scope, &armauthorization.RoleAssignmentsClientListForScopeOptions{
		Filter: to.Ptr("atScope() and assignedTo('" + *identity.Properties.PrincipalID + "')")})
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

// allows says whether a permission covers an action.
func allows(p *armauthorization.Permission, action string) bool {
	covers := func(patterns []*string) bool {
		return slices.ContainsFunc(patterns, func(pattern *string) bool { return pattern != nil && matches(*pattern, action) })
	}
	return covers(p.Actions) && !covers(p.NotActions)
}

// matches compares an action with a pattern, in which an asterisk stands for anything, without regard to case.
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

// subjects are the service accounts that the data plane's identities are for, as OpenShift names them.
var subjects = []struct{ operator, short, account string }{
	{"disk-csi-driver", "disk-operator", "openshift-cluster-csi-drivers:azure-disk-csi-driver-operator"},
	{"disk-csi-driver", "disk-controller", "openshift-cluster-csi-drivers:azure-disk-csi-driver-controller-sa"},
	{"disk-csi-driver", "disk-node", "openshift-cluster-csi-drivers:azure-disk-csi-driver-node-sa"},
	{"file-csi-driver", "file-operator", "openshift-cluster-csi-drivers:azure-file-csi-driver-operator"},
	{"file-csi-driver", "file-controller", "openshift-cluster-csi-drivers:azure-file-csi-driver-controller-sa"},
	{"file-csi-driver", "file-node", "openshift-cluster-csi-drivers:azure-file-csi-driver-node-sa"},
	{"image-registry", "registry", "openshift-image-registry:registry"},
	{"image-registry", "registry-operator", "openshift-image-registry:cluster-image-registry-operator"},
}

// federatedAudience is whom tokens of service accounts are for when they are exchanged.
const federatedAudience = "openshift"

// eachCredential calls do for each federated credential that the cluster has, one after the other: Azure takes no two
// writes of one identity at the same time.
func (a *attempt) eachCredential(do func(credentials FederatedCredentials, identity *arm.ResourceID, name, subject string) error) error {
	for _, s := range subjects {
		id := a.cluster.Spec.GetPlatform().GetDataPlaneOperators()[s.operator]
		if id == "" {
			continue
		}
		parsed, err := arm.ParseResourceID(id)
		if err != nil {
			return fmt.Errorf("the identity's id %q is malformed", id)
		}
		credentials, err := a.Clients.FederatedCredentials(parsed.SubscriptionID)
		if err != nil {
			return err
		}
		if err := do(credentials, parsed, a.cluster.ID()+"-"+s.short, "system:serviceaccount:"+s.account); err != nil {
			return err
		}
	}
	a.done()
	return nil
}

func (a *attempt) federate(ctx context.Context) error {
	issuer := a.Region.Issuer(a.cluster)
	return a.eachCredential(func(credentials FederatedCredentials, identity *arm.ResourceID, name, subject string) error {
		_, err := credentials.CreateOrUpdate(ctx, identity.ResourceGroupName, identity.Name, name, armmsi.FederatedIdentityCredential{
			Properties: &armmsi.FederatedIdentityCredentialProperties{Issuer: to.Ptr(issuer), Subject: to.Ptr(subject), Audiences: []*string{to.Ptr(federatedAudience)}}}, nil)
		return err
	})
}

func (a *attempt) removeFederation(ctx context.Context) error {
	return a.eachCredential(func(credentials FederatedCredentials, identity *arm.ResourceID, name, _ string) error {
		if _, err := credentials.Delete(ctx, identity.ResourceGroupName, identity.Name, name, nil); err != nil && !gone(err) {
			return err
		}
		return nil
	})
}
