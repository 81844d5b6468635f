package tofu_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

func TestTables(t *testing.T) {
	tables := must.Get(tofu.NewTables("maestro"))(t)
	want := map[string]tofu.Permission{
		"maestro-server-publish-sourceevents":  {"maestro-server", "sourceevents-of-all", "Publisher"},
		"maestro-server-subscribe-agentevents": {"maestro-server", "agentevents-of-all", "Subscriber"},
		"maestro-agent-publish-agentevents":    {"maestro-agent", "agentevents-of-one", "Publisher"},
		"maestro-agent-subscribe-sourceevents": {"maestro-agent", "sourceevents-of-one", "Subscriber"},
	}
	for name, permission := range want {
		if tables.TopicPermissions[name] != permission {
			t.Errorf("%s is %v, want %v", name, tables.TopicPermissions[name], permission)
		}
	}
	if len(tables.TopicPermissions) != len(want) {
		t.Errorf("there are permissions %v", tables.TopicPermissions)
	}
	// An agent has the topics of its own consumer and no others.
	if space := tables.TopicSpaces["sourceevents-of-one"]; len(space) != 1 || space[0] != "sources/maestro/consumers/${client.attributes.consumer}/sourceevents" {
		t.Errorf("the topics of an agent are %q", space)
	}
	if tables.CosmosContainers["Billing"].PartitionKey != "/subscriptionId" || tables.ServiceAccounts["maestro-agent"].Namespace != "maestro-agent" {
		t.Errorf("the tables are %+v", tables)
	}
}

// TestServiceAccountsAreThoseOfCharts checks that each service account that may use a managed identity is in a chart. Azure compares its
// namespace and name with the subject of the federated credential.
func TestServiceAccountsAreThoseOfCharts(t *testing.T) {
	tables := must.Get(tofu.NewTables("maestro"))(t)
	checked := 0
	for _, accounts := range []map[string]tofu.Account{tables.ServiceAccounts, tables.MigrationAccounts, tables.ProvisionAccounts} {
		for _, account := range accounts {
			file := "public-prod-uksouth.yaml"
			if account.Namespace == "maestro-agent" || account.Namespace == "gateway-tunnel" { // of stamps
				file = "public-prod-uksouth-1.yaml"
			}
			objects := must.Get(os.ReadFile("../../../charts/pkg/chart/testdata/golden/" + account.Namespace + "/" + file))(t)
			if !slices.ContainsFunc(strings.Split(string(objects), "\n---\n"), func(object string) bool {
				return strings.Contains(object, "kind: ServiceAccount\n") && strings.Contains(object+"\n", "\n  name: "+account.Name+"\n  namespace: "+account.Namespace+"\n")
			}) {
				t.Errorf("the chart %s has no service account %s", account.Namespace, account.Name)
			}
			checked++
		}
	}
	if checked != 8+3+2+2+2 {
		t.Errorf("there are %d service accounts", checked)
	}
}

func TestNewRejectsWrongTargets(t *testing.T) {
	opened := must.Get(deployment.Open(configuration))(t)
	for _, c := range []struct {
		scope  tofu.Scope
		target layer.Target
	}{
		{tofu.ManagementCluster, layer.Target{"public", "prod", "westus3"}},
		{tofu.Region, layer.Target{"public", "prod", "westus3", "1"}},
		{tofu.Global, layer.Target{"public", "prod"}},
		{tofu.Region, layer.Target{"public", "prod", "nowhere"}},
	} {
		if _, err := tofu.NewVariables(opened, c.scope, c.target); err == nil || !strings.Contains(err.Error(), c.target.String()) {
			t.Errorf("%s of %s: %v", c.scope, c.target, err)
		}
	}
	values := must.Get(tofu.NewVariables(opened, tofu.ServiceCluster, layer.Target{"public", "prod", "westus3"}))(t)
	if err := values.SetOuter(tofu.ServiceCluster, map[tofu.Scope]json.RawMessage{tofu.Global: []byte("{}")}); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("outputs of the region are missing: %v", err)
	}
}

// TestSecretReads expects that the scopes with vaults have the secrets of their own target, and that secrets of another vault are refused: the
// scope assigns no role there.
func TestSecretReads(t *testing.T) {
	opened := must.Get(deployment.Open(configuration))(t)
	target := layer.Target{"public", "prod", "westus3"}
	stamp := append(slices.Clone(target), "1")
	for _, c := range []struct {
		scope  tofu.Scope
		target layer.Target
		secret string // only who reads this secret is compared, if it is not empty
		want   []values.SecretRead
	}{
		{scope: tofu.Global, target: target},
		{scope: tofu.ServiceCluster, target: target},
		{tofu.Region, target, "admin-intent-key", []values.SecretRead{{Identity: "admin-prod-usw3", Vault: "hcpm-prod-usw3-svc", Secret: "admin-intent-key"}}},
		{tofu.ManagementCluster, stamp, "", []values.SecretRead{
			{Identity: "gateway-tunnel-prod-usw3-1", Vault: "hcpm-prod-usw3-m1", Secret: "intent-public-keys"},
			{Identity: "maestro-agent-prod-usw3-1", Vault: "hcpm-prod-usw3-m1", Secret: "maestro-agent-mqtt"},
			{Identity: "maestro-agent-prod-usw3-1", Vault: "hcpm-prod-usw3-m1", Secret: "maestro-agent-secrets-key"},
		}},
	} {
		v := must.Get(tofu.NewVariables(opened, c.scope, c.target))(t)
		got := slices.DeleteFunc(v.Tables.SecretReads, func(read values.SecretRead) bool { return c.secret != "" && read.Secret != c.secret })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s of %s: identities read %v, want %v", c.scope, c.target, got, c.want)
		}
	}

	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(configuration)))
	wrong := "managementCluster: {tunnel: {intentKeys: {vault: service, secret: admin-intent-key}}}\n"
	must.Do(t, os.WriteFile(dir+"/clouds/public/prod/westus3/1.yaml", []byte(wrong), 0o600))
	opened = must.Get(deployment.Open(dir))(t)
	if _, err := tofu.NewVariables(opened, tofu.ManagementCluster, stamp); err == nil || !strings.Contains(err.Error(), "gateway-tunnel-prod-usw3-1 mounts the secret admin-intent-key of the vault hcpm-prod-usw3-svc") {
		t.Errorf("a management cluster with a secret of the region: %v", err)
	}
}

// TestTypesAreEmulated checks that the emulator of Azure has each type of the templates at their api-version. A type that it does not have
// could not be applied in the test of the templates.
func TestTypesAreEmulated(t *testing.T) {
	azure := must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: emulatortest.Seed("example.com")}))(t)
	defer azure.Close()
	text := must.Get(os.ReadFile(templates + "/types.json"))(t)
	var types map[string]string
	must.Do(t, json.Unmarshal(text, &types))
	for name, versioned := range types {
		kind, version, found := strings.Cut(versioned, "@")
		if !found {
			t.Errorf("%s: %s has no api-version", name, versioned)
			continue
		}
		parts := strings.Split(kind, "/")
		path := emulatortest.Group + "/providers/" + parts[0]
		for _, part := range parts[1:] {
			path += "/" + part + "/default"
		}
		if kind == "Microsoft.Resources/resourceGroups" {
			path = emulatortest.Group
		}
		status, body, err := azure.Send(t.Context(), azure.Tokens, "https://management.azure.com", http.MethodGet, path+"?api-version="+version, "")
		if err != nil || status != 404 && status != 200 {
			t.Errorf("%s: %s: %d %s, %v", name, versioned, status, body, err)
		}
	}
}
