package tofu_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/azuretest"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

// reader is the right of an identity to read the secrets at a scope and below it.
type reader struct{ Identity, Scope string }

// vault returns the ID of the vault with the secrets of the scope's charts, and the rights that the charts need: one for each secret that they mount.
func (d *deploy) vault(t *testing.T) (string, map[reader]bool) {
	t.Helper()
	config := must.Get(open(t).Render(parse(t, d.target)))(t)
	text := func(keys ...string) string { return config.Get(keys...).Plain().(string) }
	id := func(subscription, group, name string) string {
		return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/Microsoft.KeyVault/vaults/" + name
	}
	vault := id(text("subscriptions", "region"), text("resourceGroups", "region"), text("keyVaults", "service"))
	if d.scope == tofu.ManagementCluster {
		vault = id(text("subscriptions", "management"), text("managementCluster", "resourceGroup"), text("managementCluster", "keyVault"))
	}
	values := must.Get(tofu.NewVariables(open(t), d.scope, parse(t, d.target)))(t)
	rights := map[reader]bool{}
	for _, read := range values.Tables.SecretReads {
		rights[reader{read.Identity, vault + "/secrets/" + read.Secret}] = true
	}
	return vault, rights
}

// checkPlannedReaders compares the role assignments at and below the vault of the scope, which a plan creates, with the secrets that charts mount.
func (d *deploy) checkPlannedReaders(t *testing.T, plan *tofu.Plan) {
	t.Helper()
	vault, want := d.vault(t)
	got := map[reader]bool{}
	for _, change := range plan.Pending() {
		scope, _ := change.Change.After["parent_id"].(string)
		if change.Type() != "Microsoft.Authorization/roleAssignments" || !rbac.Within(scope, vault) {
			continue
		}
		// The plan does not know the principal. The template takes it by the name of the identity in the key.
		key, _ := strings.CutPrefix(change.Address, `module.secrets_role["`)
		identity, _, _ := strings.Cut(key, "/")
		got[reader{identity, scope}] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rights for the vault differ from what charts mount (-mounted, +permitted):\n%s", diff)
	}
}

// checkReaders compares who may read secrets of the vault of an applied scope with the secrets that charts mount. It evaluates all role assignments
// at, above and below the vault.
func (d *deploy) checkReaders(t *testing.T, azure *azuretest.Azure, identities map[string]string) {
	t.Helper()
	vault, want := d.vault(t)
	if len(want) == 0 {
		t.Fatalf("%s: no chart mounts a secret", d.scope)
	}
	var assignments struct {
		Value []struct {
			Properties struct{ Scope, PrincipalID, RoleDefinitionID string }
		}
	}
	fetch(t, azure, vault+"/providers/Microsoft.Authorization/roleAssignments?api-version=2022-04-01", &assignments)
	got := map[reader]bool{}
	for _, assignment := range assignments.Value {
		p := assignment.Properties
		if p.PrincipalID != entratest.ObjectID && readsSecrets(t, azure, p.RoleDefinitionID) { // the principal of the test owns everything
			got[reader{identities[p.PrincipalID], p.Scope}] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the rights to read secrets differ from what charts mount (-mounted, +permitted):\n%s", d.scope, diff)
	}
}

// identities returns the names of the managed identities in the group of the scope's vault, by principal.
func (d *deploy) identities(t *testing.T, azure *azuretest.Azure) map[string]string {
	t.Helper()
	vault, _ := d.vault(t)
	group, _, _ := strings.Cut(vault, "/providers/")
	var list struct {
		Value []struct {
			Name       string
			Properties struct{ PrincipalID string }
		}
	}
	fetch(t, azure, group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities?api-version=2023-01-31", &list)
	names := map[string]string{}
	for _, identity := range list.Value {
		names[identity.Properties.PrincipalID] = identity.Name
	}
	return names
}

// readsSecrets reports whether a role permits its principals to read secrets.
func readsSecrets(t *testing.T, azure *azuretest.Azure, id string) bool {
	t.Helper()
	var definition struct {
		Properties struct{ Permissions []rbac.Role }
	}
	fetch(t, azure, id+"?api-version=2022-04-01", &definition)
	for _, role := range definition.Properties.Permissions {
		if role.Permits(rbac.Action{Name: "Microsoft.KeyVault/vaults/secrets/getSecret/action", Data: true}) {
			return true
		}
	}
	return false
}

// fetch reads from Resource Manager as the principal that owns everything.
func fetch(t *testing.T, azure *azuretest.Azure, path string, into any) {
	t.Helper()
	status, text, err := azure.Send(t.Context(), azure.Tokens, "https://management.azure.com", http.MethodGet, path, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, text)
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
