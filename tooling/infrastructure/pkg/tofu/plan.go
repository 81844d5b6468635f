package tofu

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// protected lists the types whose deletion loses data, control planes, or names that others use.
func protected() []string {
	return []string{
		"Microsoft.ContainerRegistry/registries",
		"Microsoft.ContainerService/managedClusters",
		"Microsoft.DBforPostgreSQL/flexibleServers",
		"Microsoft.DBforPostgreSQL/flexibleServers/databases",
		"Microsoft.DocumentDB/databaseAccounts",
		"Microsoft.DocumentDB/databaseAccounts/sqlDatabases",
		"Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers",
		"Microsoft.KeyVault/vaults",
		"Microsoft.KeyVault/vaults/keys",
		"Microsoft.Network/dnsZones",
		"Microsoft.Resources/resourceGroups",
		"Microsoft.Storage/storageAccounts",
		"Microsoft.Storage/storageAccounts/blobServices/containers",
		"Microsoft.Storage/storageAccounts/blobServices/containers/immutabilityPolicies",
	}
}

// Plan is the part of a plan in JSON (tofu show -json) that Check reads.
type Plan struct {
	Changes []Change `json:"resource_changes"`
}

// Change is the change of one resource.
type Change struct {
	Address string `json:"address"`
	Mode    string `json:"mode"`
	// Kind is the type of the resource in OpenTofu. Type returns that in Azure.
	Kind   string `json:"type"`
	Change struct {
		Actions []string       `json:"actions"`
		Before  map[string]any `json:"before"`
		After   map[string]any `json:"after"`
	} `json:"change"`
}

// ReadPlan reads a plan.
func ReadPlan(r io.Reader) (*Plan, error) {
	var p Plan
	if err := json.NewDecoder(r).Decode(&p); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	return &p, nil
}

// Pending returns the changes that a plan makes, without those that only read.
func (p *Plan) Pending() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		return slices.Equal(c.Change.Actions, []string{"no-op"}) || slices.Equal(c.Change.Actions, []string{"read"})
	})
}

// Type returns the type of a resource in Azure, without its api-version.
func (c Change) Type() string {
	for _, values := range []map[string]any{c.Change.Before, c.Change.After} {
		if text, ok := values["type"].(string); ok {
			name, _, _ := strings.Cut(text, "@")
			return name
		}
	}
	return ""
}

// Version returns the api-version of the resource with an address, or "".
func (p *Plan) Version(address string) string {
	for _, c := range p.Changes {
		if text, ok := c.Change.After["type"].(string); ok && c.Address == address {
			_, version, _ := strings.Cut(text, "@")
			return version
		}
	}
	return ""
}

// updateResource is the kind of a resource that sets properties of a resource in Azure. Its deletion changes nothing in Azure.
const updateResource = "azapi_update_resource"

// Loss returns the addresses of the resources that a plan deletes or replaces although they hold data.
func (p *Plan) Loss() []string {
	var lost []string
	for _, c := range p.Changes {
		if c.Kind != updateResource && slices.Contains(c.Change.Actions, "delete") && slices.ContainsFunc(protected(), func(t string) bool { return strings.EqualFold(t, c.Type()) }) {
			lost = append(lost, c.Address)
		}
	}
	return lost
}

// LossError reports deletions that nobody allowed.
type LossError struct{ Addresses []string }

// Error lists the addresses with the flag that allows each.
func (e *LossError) Error() string {
	lines := []string{"the plan deletes data; nothing was applied:"}
	for _, address := range e.Addresses {
		lines = append(lines, fmt.Sprintf("  %s (allow with --allow-loss '%s')", address, address))
	}
	return strings.Join(lines, "\n")
}

// Check returns a *LossError unless allowed has the address of each deletion, and an error if allowed has an address that the plan does not
// delete.
func (p *Plan) Check(allowed []string) error {
	lost := p.Loss()
	for _, address := range allowed {
		if !slices.Contains(lost, address) {
			return fmt.Errorf("--allow-loss %s: the plan does not delete this", address)
		}
	}
	if refused := slices.DeleteFunc(lost, func(address string) bool { return slices.Contains(allowed, address) }); len(refused) > 0 {
		return &LossError{refused}
	}
	return nil
}
