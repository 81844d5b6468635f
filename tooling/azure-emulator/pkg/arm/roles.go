package arm

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ownerRole is the ID of the role that permits everything.
const ownerRole = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"

// role is a built-in role definition.
type role struct {
	id, name            string
	actions, notActions []string
}

// builtInRoles returns the built-in roles that the service uses. IDs and names are Azure's. The actions are the subset by
// which the roles differ.
func builtInRoles() []role {
	network := []string{"Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/read"}
	join := append(slices.Clone(network), "Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Network/networkSecurityGroups/read", "Microsoft.Network/networkSecurityGroups/join/action")
	return []role{
		{id: ownerRole, name: "Owner", actions: []string{"*"}},
		{id: "b24988ac-6180-42a0-ab88-20f7382dd24c", name: "Contributor", actions: []string{"*"}, notActions: []string{"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action"}},
		{id: "acdd72a7-3385-48ef-bd42-f606fba81ae7", name: "Reader", actions: []string{"*/read"}},
		{id: "4d97b98b-1d4f-4787-a291-c67834d212e7", name: "Network Contributor", actions: []string{"Microsoft.Network/*"}},
		{id: "a1f96423-95ce-4224-ab27-4e3dc72facd4", name: "Azure Red Hat OpenShift Cloud Controller Manager", actions: join},
		{id: "0336e1d3-7a87-462b-b6db-342b63f7802c", name: "Azure Red Hat OpenShift Cluster Ingress Operator", actions: append(slices.Clone(network), "Microsoft.Network/dnsZones/A/write", "Microsoft.Network/dnsZones/A/delete")},
		{id: "5b7237c5-45e1-49d6-bc18-a1f62f400748", name: "Azure Red Hat OpenShift Disk Storage Operator", actions: []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Compute/disks/delete"}},
		{id: "0d7aedc0-15fd-4a67-a412-efad370c947e", name: "Azure Red Hat OpenShift File Storage Operator", actions: append(slices.Clone(join), "Microsoft.Storage/storageAccounts/read")},
		{id: "8b32b316-c2f5-4ddf-b05b-83dacd2d08b5", name: "Azure Red Hat OpenShift Image Registry Operator", actions: append(slices.Clone(network), "Microsoft.Storage/storageAccounts/read", "Microsoft.Storage/storageAccounts/write")},
		{id: "be7a6435-15ae-4171-8f30-4a343eff9e8f", name: "Azure Red Hat OpenShift Network Operator", actions: join},
		{id: "88366f10-ed47-4cc0-9fab-c8a06148393e", name: "Azure Red Hat OpenShift Hosted Control Planes Cluster API Provider", actions: append(slices.Clone(join), "Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/write", "Microsoft.Compute/virtualMachines/delete")},
		{id: "fc0c873f-45e9-4d0d-a7d1-585aab30c6ed", name: "Azure Red Hat OpenShift Hosted Control Planes Control Plane Operator", actions: append(slices.Clone(network), "Microsoft.Network/networkSecurityGroups/read")},
		{id: "c0ff367d-66d8-445e-917c-583feb0ef0d4", name: "Azure Red Hat OpenShift Hosted Control Planes Service Managed Identity", actions: append(slices.Clone(join), "Microsoft.Network/virtualNetworks/subnets/write")},
		{id: "ef318e2a-8334-4a05-9e4a-295a196c6a6e", name: "Azure Red Hat OpenShift Federated Credential", actions: []string{"Microsoft.ManagedIdentity/userAssignedIdentities/read", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/delete"}},
	}
}

// findRole returns the built-in role with an ID, or nil.
func findRole(id string) *role {
	all := builtInRoles()
	i := slices.IndexFunc(all, func(r role) bool { return strings.EqualFold(r.id, id) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// representation returns the role definition as the body of a response.
func (r *role) representation(scope string) map[string]any {
	list := func(s []string) []string { return append([]string{}, s...) }
	return map[string]any{
		"id": scope + "/providers/Microsoft.Authorization/roleDefinitions/" + r.id, "name": r.id, "type": "Microsoft.Authorization/roleDefinitions",
		"properties": map[string]any{"roleName": r.name, "type": "BuiltInRole", "description": "", "assignableScopes": []string{"/"},
			"permissions": []any{map[string]any{"actions": list(r.actions), "notActions": list(r.notActions), "dataActions": []string{}, "notDataActions": []string{}}}},
	}
}

// roleDefinitions responds with one role definition, with all, or with those that match a filter by name.
func (c *call) roleDefinitions() (*response, error) {
	if c.path.name != "" {
		r := findRole(c.path.name)
		if r == nil {
			return nil, &Error{Status: http.StatusNotFound, Code: "RoleDefinitionDoesNotExist", Message: fmt.Sprintf("The specified role definition with ID '%s' does not exist.", c.path.name)}
		}
		return &response{status: http.StatusOK, body: r.representation(c.path.scope)}, nil
	}
	filter := c.query.Get("$filter")
	name := filterRoleName.FindStringSubmatch(filter)
	if filter != "" && name == nil {
		return nil, badRequest("UnsupportedQuery", "The filter '%s' is not supported.", filter)
	}
	value := []any{}
	for _, r := range builtInRoles() {
		if name == nil || strings.EqualFold(r.name, name[1]) {
			value = append(value, r.representation(c.path.scope))
		}
	}
	return &response{status: http.StatusOK, body: map[string]any{"value": value}}, nil
}
