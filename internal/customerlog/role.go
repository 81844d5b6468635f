package customerlog

// Role is a role definition of Azure.
type Role struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Actions     []string `json:"actions"`
	DataActions []string `json:"dataActions"`
}

// ForwarderRole returns the role of the log forwarder in customers' subscriptions. It can read diagnostic settings, create containers, and add
// content to blobs. It can neither read nor replace nor delete what an account has. In Azure, Azure Monitor itself has these rights.
func ForwarderRole() Role {
	return Role{
		ID: "5b7c9c2e-8d0f-4c55-9a34-6f0f5d3f2a71", Name: "hcpmesh Log Forwarder",
		Actions: []string{
			"Microsoft.Insights/diagnosticSettings/read",
			"Microsoft.Storage/storageAccounts/blobServices/containers/write",
		},
		DataActions: []string{"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action"},
	}
}
