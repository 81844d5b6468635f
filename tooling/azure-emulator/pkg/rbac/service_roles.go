package rbac

// CustomerRoleID and CustomerRoleName are those of the definition of the role that Cluster Service needs in the subscriptions of customers. In Azure, it
// gets the role when a customer registers the resource provider; the emulators of Azure assign it in the same way.
const (
	CustomerRoleID   = "3d1f6a52-90c4-4b7e-8a35-6e2f0d9b7c18"
	CustomerRoleName = "Cluster Service in customers' subscriptions"
)

// CustomerRoleActions returns what Cluster Service does in the subscriptions of customers: managed resource groups with a DNS zone, the security
// groups of subnets, the credentials and roles of the identities of clusters, and the sizes and quotas of virtual machines.
func CustomerRoleActions() []string {
	const identities = "Microsoft.ManagedIdentity/userAssignedIdentities/"
	return []string{
		"Microsoft.Resources/subscriptions/resourceGroups/read", "Microsoft.Resources/subscriptions/resourceGroups/write", "Microsoft.Resources/subscriptions/resourceGroups/delete",
		"Microsoft.Network/dnsZones/read", "Microsoft.Network/dnsZones/write", "Microsoft.Network/dnsZones/delete",
		"Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/read", "Microsoft.Network/virtualNetworks/subnets/write",
		"Microsoft.Network/networkSecurityGroups/read", "Microsoft.Network/networkSecurityGroups/join/action",
		identities + "read", identities + "federatedIdentityCredentials/read", identities + "federatedIdentityCredentials/write", identities + "federatedIdentityCredentials/delete",
		"Microsoft.Authorization/roleAssignments/read", "Microsoft.Authorization/roleDefinitions/read",
		"Microsoft.Compute/skus/read", "Microsoft.Compute/locations/usages/read",
	}
}

// CredentialsRole returns the role with which Cluster Service stores the credentials of control planes' identities in a vault. It permits no
// reading of their values.
func CredentialsRole() Role {
	const secrets = "Microsoft.KeyVault/vaults/secrets/"
	return Role{ID: "5c0d8f3e-1b7a-4e92-9c46-7f2a0d5b8e31", Name: "Cluster Service for credentials of identities",
		DataActions: []string{secrets + "setSecret/action", secrets + "readMetadata/action", secrets + "delete", secrets + "recover/action"}}
}
