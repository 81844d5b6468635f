package arm

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// The IDs of the built-in roles of the region's programs.
const (
	// OwnerRole permits everything except access to data.
	OwnerRole               = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	DNSZoneContributorRole  = "befefa01-2a29-4197-83a8-272ff33ce314"
	CertificatesOfficerRole = "a4417e6f-fecd-4de8-b567-7b0420556985"
	// VaultAdministratorRole permits everything with the data of a vault.
	VaultAdministratorRole  = "00482a5a-887f-4fb3-b363-3b7fe8e74483"
	BlobDataContributorRole = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
	BlobDataReaderRole      = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
	// CryptoUserRole permits to encrypt and decrypt with the keys of a vault.
	CryptoUserRole = "12338af0-0e69-4776-bea7-57ae8d297424"
)

// containerActions is the prefix of the actions on containers of Blob Storage.
const containerActions = "Microsoft.Storage/storageAccounts/blobServices/containers/"

// builtInRoles returns the built-in roles that the service uses. IDs and names are Azure's. The actions are the subset by
// which the roles differ.
func builtInRoles() []rbac.Role {
	network := []string{"Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/read"}
	join := append(slices.Clone(network), "Microsoft.Network/virtualNetworks/subnets/join/action", "Microsoft.Network/networkSecurityGroups/read", "Microsoft.Network/networkSecurityGroups/join/action")
	return []rbac.Role{
		{ID: OwnerRole, Name: "Owner", Actions: []string{"*"}},
		{ID: "b24988ac-6180-42a0-ab88-20f7382dd24c", Name: "Contributor", Actions: []string{"*"}, NotActions: []string{"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action"}},
		{ID: "acdd72a7-3385-48ef-bd42-f606fba81ae7", Name: "Reader", Actions: []string{"*/read"}},
		{ID: "4d97b98b-1d4f-4787-a291-c67834d212e7", Name: "Network Contributor", Actions: []string{"Microsoft.Network/*"}},
		{ID: DNSZoneContributorRole, Name: "DNS Zone Contributor", Actions: []string{"Microsoft.Network/dnsZones/*"}},
		{ID: VaultAdministratorRole, Name: "Key Vault Administrator", DataActions: []string{"Microsoft.KeyVault/vaults/*"}},
		{ID: CertificatesOfficerRole, Name: "Key Vault Certificates Officer", DataActions: []string{"Microsoft.KeyVault/vaults/certificates/*", "Microsoft.KeyVault/vaults/certificatecas/*"}},
		{ID: "21090545-7ca7-4776-b22c-e363652d74d2", Name: "Key Vault Reader", DataActions: []string{"Microsoft.KeyVault/vaults/*/read"}},
		{ID: "4633458b-17de-408a-b874-0445c86b69e6", Name: "Key Vault Secrets User", DataActions: []string{"Microsoft.KeyVault/vaults/secrets/getSecret/action", "Microsoft.KeyVault/vaults/secrets/readMetadata/action"}},
		{ID: CryptoUserRole, Name: "Key Vault Crypto User", DataActions: []string{keyActions + "read", keyActions + "encrypt/action", keyActions + "decrypt/action"}},
		{ID: "7f951dda-4ed3-4680-a7ca-43fe172d538d", Name: "AcrPull", Actions: []string{"Microsoft.ContainerRegistry/registries/pull/read"}},
		{ID: "f1a07417-d97a-45cb-824c-7a7467783830", Name: "Managed Identity Operator", Actions: []string{"Microsoft.ManagedIdentity/userAssignedIdentities/*/read", "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action"}},
		{ID: BlobDataContributorRole, Name: "Storage Blob Data Contributor", Actions: []string{containerActions + "read", containerActions + "write", containerActions + "delete"},
			DataActions: []string{containerActions + "blobs/read", containerActions + "blobs/write", containerActions + "blobs/delete", containerActions + "blobs/add/action"}},
		{ID: BlobDataReaderRole, Name: "Storage Blob Data Reader", Actions: []string{containerActions + "read"}, DataActions: []string{containerActions + "blobs/read"}},
		{ID: "a1f96423-95ce-4224-ab27-4e3dc72facd4", Name: "Azure Red Hat OpenShift Cloud Controller Manager", Actions: join},
		{ID: "0336e1d3-7a87-462b-b6db-342b63f7802c", Name: "Azure Red Hat OpenShift Cluster Ingress Operator", Actions: append(slices.Clone(network), "Microsoft.Network/dnsZones/A/write", "Microsoft.Network/dnsZones/A/delete")},
		{ID: "5b7237c5-45e1-49d6-bc18-a1f62f400748", Name: "Azure Red Hat OpenShift Disk Storage Operator", Actions: []string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Compute/disks/delete"}},
		{ID: "0d7aedc0-15fd-4a67-a412-efad370c947e", Name: "Azure Red Hat OpenShift File Storage Operator", Actions: append(slices.Clone(join), "Microsoft.Storage/storageAccounts/read")},
		{ID: "8b32b316-c2f5-4ddf-b05b-83dacd2d08b5", Name: "Azure Red Hat OpenShift Image Registry Operator", Actions: append(slices.Clone(network), "Microsoft.Storage/storageAccounts/read", "Microsoft.Storage/storageAccounts/write")},
		{ID: "be7a6435-15ae-4171-8f30-4a343eff9e8f", Name: "Azure Red Hat OpenShift Network Operator", Actions: join},
		{ID: "88366f10-ed47-4cc0-9fab-c8a06148393e", Name: "Azure Red Hat OpenShift Hosted Control Planes Cluster API Provider", Actions: append(slices.Clone(join), "Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/write", "Microsoft.Compute/virtualMachines/delete")},
		{ID: "fc0c873f-45e9-4d0d-a7d1-585aab30c6ed", Name: "Azure Red Hat OpenShift Hosted Control Planes Control Plane Operator", Actions: append(slices.Clone(network), "Microsoft.Network/networkSecurityGroups/read")},
		{ID: "c0ff367d-66d8-445e-917c-583feb0ef0d4", Name: "Azure Red Hat OpenShift Hosted Control Planes Service Managed Identity", Actions: append(slices.Clone(join), "Microsoft.Network/virtualNetworks/subnets/write")},
		{ID: "ef318e2a-8334-4a05-9e4a-295a196c6a6e", Name: "Azure Red Hat OpenShift Federated Credential", Actions: []string{"Microsoft.ManagedIdentity/userAssignedIdentities/read", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write", "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/delete"}},
	}
}

// builtIn reports whether a role is Azure's, and neither one of the seed nor one that a client created.
func builtIn(id string) bool {
	return slices.ContainsFunc(builtInRoles(), func(r rbac.Role) bool { return strings.EqualFold(r.ID, id) })
}

// representation returns a role definition as the body of a response.
func (r *roleDefinition) representation(scope string) map[string]any {
	typ := "CustomRole"
	if builtIn(r.ID) {
		typ = "BuiltInRole"
	}
	list := func(s []string) []string { return append([]string{}, s...) }
	return map[string]any{
		"id": scope + "/providers/Microsoft.Authorization/roleDefinitions/" + r.ID, "name": r.ID, "type": "Microsoft.Authorization/roleDefinitions",
		"properties": map[string]any{"roleName": r.Name, "type": typ, "description": "", "assignableScopes": r.Scopes,
			"permissions": []any{map[string]any{"actions": list(r.Actions), "notActions": list(r.NotActions), "dataActions": list(r.DataActions), "notDataActions": list(r.NotDataActions)}}},
	}
}

// roleDefinition responds with a role definition.
func (c *call) roleDefinition() (*response, error) {
	r, err := c.role(c.path.name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, &Error{Status: http.StatusNotFound, Code: "RoleDefinitionDoesNotExist", Message: fmt.Sprintf("The specified role definition with ID '%s' does not exist.", c.path.name)}
	}
	return &response{status: http.StatusOK, body: r.representation(c.path.scope)}, nil
}
