package tofu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/azuretest"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

// apply applies the scope and returns the addresses of the resources that changed.
func (d *deploy) apply(t *testing.T) []string {
	t.Helper()
	w := d.workspace(t)
	plan := must.Get(w.Plan(t.Context(), false, true))(t)
	must.Do(t, plan.Check(nil))
	changed := []string{}
	for _, change := range plan.Pending() {
		changed = append(changed, strings.Join(change.Change.Actions, "+")+" "+change.Address)
	}
	if len(changed) > 0 {
		must.Do(t, w.Apply(t.Context()))
	}
	d.outputs[d.scope] = must.Get(w.Outputs(t.Context()))(t)
	return changed
}

// applyOnly applies the scope and checks that it updates one resource, and sends the properties of set again. A plan may list resources that
// refer to the resource, because its outputs are not known before; they do not change when it is applied.
func (d *deploy) applyOnly(t *testing.T, address string, set ...string) {
	t.Helper()
	if changed := d.apply(t); !slices.Contains(changed, "update "+address) {
		t.Errorf("the plan changes %q and not %s", changed, address)
	}
	log := d.log.String()
	summary := fmt.Sprintf("%d added, 1 changed, %d destroyed", len(set), len(set))
	for _, again := range set {
		if !strings.Contains(log, again+": Creation complete") {
			t.Errorf("the change of %s does not set %s again", address, again)
		}
	}
	if !strings.Contains(log, address+": Modifications complete") || !strings.Contains(log, summary) {
		t.Errorf("the change of %s changes more:\n%s", address, log[max(0, strings.LastIndex(log, "Plan: ")):])
	}
}

// TestInfrastructureLifecycle applies all scopes of a region to an emulator of Azure, applies them again, changes values, and destroys them.
func TestInfrastructureLifecycle(t *testing.T) {
	azure := azuretest.Start(t, 0)
	outputs := map[tofu.Scope]json.RawMessage{}
	deploys := map[tofu.Scope]*deploy{}
	for _, scope := range tofu.Scopes() {
		d := &deploy{scope: scope, target: region, env: azure.Env, outputs: outputs}
		if scope == tofu.ManagementCluster {
			d.target += "/1"
		}
		deploys[scope] = d
		if changed := d.apply(t); len(changed) == 0 {
			t.Errorf("%s: nothing was created", scope)
		} else {
			t.Logf("%s: %d resources", scope, len(changed))
		}
	}
	for scope, d := range deploys {
		if changed := d.apply(t); len(changed) != 0 {
			t.Errorf("%s: a second plan changes %q", scope, changed)
		}
	}
	for scope, placeholder := range placeholders(t, parse(t, region)) {
		if diff := cmp.Diff(form(t, outputs[scope]), form(t, placeholder)); diff != "" {
			t.Errorf("%s: the outputs differ from the placeholders (-real, +placeholders):\n%s", scope, diff)
		}
	}

	// The agent of tunnels has its identity in the group of the region, and its secrets in the vault of its management cluster.
	identities := deploys[tofu.Region].identities(t, azure)
	maps.Copy(identities, deploys[tofu.ManagementCluster].identities(t, azure))
	deploys[tofu.Region].checkReaders(t, azure, identities)
	deploys[tofu.ManagementCluster].checkReaders(t, azure, identities)

	var cluster struct{ EgressAddresses []string }
	must.Do(t, json.Unmarshal(outputs[tofu.ServiceCluster], &cluster))
	if addresses := slices.Compact(slices.Sorted(slices.Values(cluster.EgressAddresses))); len(addresses) != 2 {
		t.Errorf("the service cluster connects to the internet from %q, not from two addresses", cluster.EgressAddresses)
	}

	deploys[tofu.Region].change = func(config map[string]any) { config["cosmos"].(map[string]any)["backupTier"] = "Continuous7Days" }
	deploys[tofu.Region].applyOnly(t, "azapi_resource.cosmos")
	deploys[tofu.ServiceCluster].change = func(config map[string]any) {
		config["serviceCluster"].(map[string]any)["userPool"].(map[string]any)["maxCount"] = 9
	}
	deploys[tofu.ServiceCluster].applyOnly(t, "module.cluster.azapi_resource.cluster", "module.cluster.azapi_update_resource.redirection[0]")
	if changed := deploys[tofu.ServiceCluster].apply(t); len(changed) != 0 {
		t.Errorf("after the change of the cluster, a second plan changes %q", changed)
	}

	// Another name of the account would replace the data.
	deploys[tofu.Region].change = func(config map[string]any) { config["cosmos"].(map[string]any)["account"] = "hcpm-other" }
	plan := must.Get(deploys[tofu.Region].workspace(t).Plan(t.Context(), false, true))(t)
	var loss *tofu.LossError
	if err := plan.Check(nil); !errors.As(err, &loss) || !slices.Contains(loss.Addresses, "azapi_resource.cosmos") || !slices.Contains(loss.Addresses, `azapi_resource.cosmos_container["Resources"]`) {
		t.Errorf("a plan that replaces Cosmos DB is checked with %v", err)
	}
	deploys[tofu.Region].change = nil

	scopes := tofu.Scopes()
	slices.Reverse(scopes)
	for _, scope := range scopes {
		w := deploys[scope].workspace(t)
		plan := must.Get(w.Plan(t.Context(), true, true))(t)
		if err := plan.Check(nil); !errors.As(err, &loss) {
			t.Errorf("%s: a plan that destroys everything is checked with %v", scope, err)
		}
		must.Do(t, plan.Check(plan.Loss()))
		must.Do(t, w.Apply(t.Context()))
	}
	left, err := azure.Leftovers()
	if err != nil || len(left) != 0 {
		t.Errorf("after all scopes are destroyed, there are %q, %v", left, err)
	}
}

// interrupter cancels when tofu has created the first resources.
type interrupter struct {
	cancel context.CancelFunc
	log    bytes.Buffer
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("azapi_resource.zone: Creation complete")) {
		i.cancel()
	}
	return i.log.Write(p)
}

// TestApplyContinuesAfterInterruption interrupts an apply of a region and applies again. Resources that Azure was creating are not in the
// state and must be adopted.
func TestApplyContinuesAfterInterruption(t *testing.T) {
	azure := azuretest.Start(t, 20*time.Millisecond)
	outputs := map[tofu.Scope]json.RawMessage{}
	global := &deploy{scope: tofu.Global, target: region, env: azure.Env, outputs: outputs}
	global.apply(t)
	d := &deploy{scope: tofu.Region, target: region, env: azure.Env, outputs: outputs}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := &interrupter{cancel: cancel}
	d.output = stopped
	w := d.workspace(t)
	must.Get(w.Plan(t.Context(), false, true))(t)
	if err := w.Apply(ctx); err == nil {
		t.Fatalf("an interrupted apply succeeded:\n%s", &stopped.log)
	}
	d.output = nil
	adopted := 0
	w = d.workspace(t)
	for {
		must.Get(w.Plan(t.Context(), false, true))(t)
		err := w.Apply(t.Context())
		var exists *tofu.ExistsError
		if !errors.As(err, &exists) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		// Only what Azure was creating is not in the state.
		if slices.ContainsFunc(exists.Resources, func(e tofu.Existing) bool { return e.Address == "azapi_resource.zone" }) {
			t.Errorf("the state has lost %v", exists.Resources)
		}
		adopted += len(exists.Resources)
		must.Do(t, w.Adopt(exists.Resources))
	}
	t.Logf("adopted %d resources", adopted)
	if changed := d.apply(t); len(changed) != 0 {
		t.Errorf("the next plan changes %q", changed)
	}
}

// form returns JSON with its values replaced by their types.
func form(t *testing.T, text json.RawMessage) any {
	t.Helper()
	var value any
	must.Do(t, json.Unmarshal(text, &value))
	var reduce func(value any) any
	reduce = func(value any) any {
		switch v := value.(type) {
		case map[string]any:
			for name := range v {
				v[name] = reduce(v[name])
			}
			return v
		case []any:
			return "list"
		}
		return fmt.Sprintf("%T", value)
	}
	return reduce(value)
}

// TestPlansOfAllRegions validates the bodies of all scopes of all regions against Azure's type definitions, without calling a service.
func TestPlansOfAllRegions(t *testing.T) {
	azuretest.Programs(t)
	for _, target := range open(t).Targets(nil) {
		scopes := []tofu.Scope{tofu.Global, tofu.Region, tofu.ServiceCluster}
		if target.Level() == layer.Stamp {
			scopes = []tofu.Scope{tofu.ManagementCluster}
		}
		for _, scope := range scopes {
			t.Run(target.String()+"/"+string(scope), func(t *testing.T) {
				t.Parallel()
				d := &deploy{scope: scope, target: target.String(), outputs: placeholders(t, target), env: []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}}
				plan := must.Get(d.workspace(t).Plan(t.Context(), false, false))(t)
				if len(plan.Pending()) == 0 {
					t.Error("the plan creates nothing")
				}
				if scope == tofu.Region || scope == tofu.ManagementCluster {
					d.checkPlannedReaders(t, plan)
				}
			})
		}
	}
}

// TestKeysOfEtcdChangeInPlace gives a cluster that exists a key of its own for etcd, then other keys, stops using the key, and takes it away. No plan may replace or
// delete the cluster, a key or the vault, and the identity of the cluster may decrypt with the key in use and with the one before it.
func TestKeysOfEtcdChangeInPlace(t *testing.T) {
	azure := azuretest.Start(t, 0)
	outputs := map[tofu.Scope]json.RawMessage{}
	deploys := map[tofu.Scope]*deploy{}
	for _, scope := range []tofu.Scope{tofu.Global, tofu.Region, tofu.ServiceCluster} {
		deploys[scope] = &deploy{scope: scope, target: region, env: azure.Env, outputs: outputs}
	}
	deploys[tofu.Global].apply(t)
	cluster := "module.cluster.azapi_resource.cluster"
	config := must.Get(open(t).Render(parse(t, region)))(t)
	name := config.Get("serviceCluster", "name").Plain().(string)
	for number, want := range []struct {
		key    any
		unused bool
		keyID  string
		rights []string
	}{{}, {key: 1, keyID: "-1/", rights: []string{"-1"}}, {key: 2, keyID: "-2/", rights: []string{"-1", "-2"}}, {key: 3, keyID: "-3/", rights: []string{"-2", "-3"}},
		{key: 3, unused: true, rights: []string{"-2", "-3"}}, {}} {
		set := func(config map[string]any) {
			settings := config["serviceCluster"].(map[string]any)
			if delete(settings, "etcdKey"); want.key != nil {
				settings["etcdKey"], settings["etcdKeyInUse"] = want.key, !want.unused
			}
		}
		if deploys[tofu.ServiceCluster].change = set; number > 0 && want.keyID != "" {
			if _, err := deploys[tofu.ServiceCluster].workspace(t).Plan(t.Context(), false, true); err == nil || !strings.Contains(err.Error(), "The scope region has no key "+name) {
				t.Errorf("key %v: a plan before the key exists: %v", want.key, err)
			}
		}
		for _, scope := range []tofu.Scope{tofu.Region, tofu.ServiceCluster} {
			deploys[scope].change = set
			for _, change := range deploys[scope].apply(t) {
				actions, address, _ := strings.Cut(change, " ")
				if number > 0 && strings.Contains(actions, "delete") && !strings.Contains(address, "azapi_update_resource.redirection") && !strings.Contains(address, "module.etcd_role") {
					t.Errorf("key %v: the plan has the change %q", want.key, change)
				}
				if address == cluster && number > 0 && actions != "update" {
					t.Errorf("key %v: the plan changes the cluster by %s", want.key, actions)
				}
			}
			if again := deploys[scope].apply(t); len(again) != 0 {
				t.Errorf("key %v: a second plan of %s changes %q", want.key, scope, again)
			}
		}
		properties, rights := azureCluster(t, deploys[tofu.ServiceCluster])
		management := properties["securityProfile"].(map[string]any)["azureKeyVaultKms"].(map[string]any)
		keyID, _ := management["keyId"].(string)
		if management["enabled"] != (want.keyID != "") || !strings.Contains(keyID, want.keyID) || (keyID == "") != (want.keyID == "") {
			t.Errorf("key %v: the cluster has %v", want.key, management)
		}
		if len(rights) != len(want.rights) {
			t.Errorf("key %v: the identity of the cluster has rights for %q, want %q", want.key, rights, want.rights)
		}
		for i, suffix := range want.rights {
			if i < len(rights) && !strings.HasSuffix(rights[i], suffix) {
				t.Errorf("key %v: the identity of the cluster has rights for %q, want %q", want.key, rights, want.rights)
			}
		}
	}
	// A key that no cluster uses any more stays in the vault.
	left := must.Get(azure.Leftovers())(t)
	for _, suffix := range []string{"-1", "-2", "-3"} {
		if !slices.ContainsFunc(left, func(id string) bool { return strings.HasSuffix(id, "/keys/"+name+suffix) }) {
			t.Errorf("the vault has lost the key %s%s; there are %q", name, suffix, left)
		}
	}
}

// azureCluster returns the properties of the cluster in the state, and the sorted IDs of the keys for which its identity has a role.
func azureCluster(t *testing.T, d *deploy) (properties map[string]any, keys []string) {
	t.Helper()
	text := must.Get(os.ReadFile(d.state))(t)
	var state struct {
		Resources []struct {
			Module, Name string
			Instances    []struct {
				Attributes map[string]any
			}
		}
	}
	must.Do(t, json.Unmarshal(text, &state))
	for _, r := range state.Resources {
		for _, instance := range r.Instances {
			switch {
			case r.Module == "module.cluster" && r.Name == "cluster":
				body, _ := instance.Attributes["body"].(map[string]any)
				if value, ok := body["value"].(map[string]any); ok { // a dynamic value has its type beside it
					body = value
				}
				properties, _ = body["properties"].(map[string]any)
			case strings.HasPrefix(r.Module, "module.cluster.module.etcd_role"):
				keys = append(keys, instance.Attributes["parent_id"].(string))
			}
		}
	}
	if properties == nil {
		t.Fatal("the state has no cluster")
	}
	slices.Sort(keys)
	return properties, keys
}

// TestReleasesReplaceCaches checks that the registry for OpenShift caches images only if pipelines do not copy releases to it.
func TestReleasesReplaceCaches(t *testing.T) {
	azuretest.Programs(t)
	for reason, c := range map[string]struct {
		releases []any
		caches   int
	}{"no releases": {[]any{}, 2}, "a release": {[]any{"quay.io/openshift-release-dev/ocp-release@sha256:a"}, 0}} {
		d := &deploy{scope: tofu.Global, target: region, outputs: placeholders(t, parse(t, region)), env: []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"},
			change: func(config map[string]any) { config["registry"].(map[string]any)["releases"] = c.releases }}
		plan := must.Get(d.workspace(t).Plan(t.Context(), false, false))(t)
		caches := 0
		for _, change := range plan.Pending() {
			if strings.HasPrefix(change.Address, "azapi_resource.cache[") {
				caches++
			}
		}
		if caches != c.caches {
			t.Errorf("%s: the plan creates %d caches, not %d", reason, caches, c.caches)
		}
	}
}

// TestAlertsNotifyTheirReceivers checks that each alert has the action group of its severity, and that alerts without receivers have none.
func TestAlertsNotifyTheirReceivers(t *testing.T) {
	azuretest.Programs(t)
	hook := map[string]any{"name": "on-call", "endpoint": "https://hooks.example.com/alerts", "objectId": "5ef6b126-3d80-5621-babb-69d461225910", "identifierUri": "api://hooks"}
	for reason, c := range map[string]struct {
		pages, tickets map[string]any
		severities     []string
	}{
		"nobody":               {map[string]any{"emails": []any{}, "webhooks": []any{}}, map[string]any{"emails": []any{}, "webhooks": []any{}}, nil},
		"a webhook for pages":  {map[string]any{"emails": []any{}, "webhooks": []any{hook}}, map[string]any{"emails": []any{}, "webhooks": []any{}}, []string{"page"}},
		"two teams and a hook": {map[string]any{"emails": []any{"a@example.com", "b@example.com"}, "webhooks": []any{hook}}, map[string]any{"emails": []any{"a@example.com"}, "webhooks": []any{}}, []string{"page", "ticket"}},
	} {
		d := &deploy{scope: tofu.Region, target: region, outputs: placeholders(t, parse(t, region)), env: []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"},
			change: func(config map[string]any) {
				config["telemetry"].(map[string]any)["alertReceivers"] = map[string]any{"pages": c.pages, "tickets": c.tickets}
			}}
		plan, err := d.workspace(t).Plan(t.Context(), false, false)
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		groups, alerts := 0, 0
		for _, change := range plan.Pending() {
			if strings.HasPrefix(change.Address, "azapi_resource.action_group[") {
				groups++
			}
			if !strings.HasPrefix(change.Address, "azapi_resource.alerts[") {
				continue
			}
			for _, rule := range change.Change.After["body"].(map[string]any)["properties"].(map[string]any)["rules"].([]any) {
				rule := rule.(map[string]any)
				labels, _ := rule["labels"].(map[string]any)
				severity, _ := labels["severity"].(string)
				actions, _ := rule["actions"].([]any)
				if notifies := slices.Contains(c.severities, severity); notifies != (len(actions) == 1) || notifies && !strings.HasSuffix(actions[0].(map[string]any)["actionGroupId"].(string), "-"+severity) {
					t.Errorf("%s: the alert %v with the severity %q has the actions %v", reason, rule["alert"], severity, actions)
				}
				if rule["alert"] != nil {
					alerts++
				}
			}
		}
		if groups != len(c.severities) || alerts == 0 {
			t.Errorf("%s: the plan has %d action groups and %d alerts", reason, groups, alerts)
		}
	}
}

// TestAuditLogsOfClusters checks that each cluster sends the audit logs of its API server to the account of the region, with or without reads,
// and that engineers reach the account from the addresses from which they reach admin.
func TestAuditLogsOfClusters(t *testing.T) {
	azuretest.Programs(t)
	plan := func(scope tofu.Scope, change func(config map[string]any)) *tofu.Plan {
		t.Helper()
		target := region
		if scope == tofu.ManagementCluster {
			target += "/1"
		}
		d := &deploy{scope: scope, target: target, outputs: placeholders(t, parse(t, target)), env: []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}, change: change}
		plan, err := d.workspace(t).Plan(t.Context(), false, false)
		if err != nil {
			t.Fatalf("%s: %v", scope, err)
		}
		return plan
	}
	properties := func(plan *tofu.Plan, address string) map[string]any {
		t.Helper()
		i := slices.IndexFunc(plan.Changes, func(c tofu.Change) bool { return c.Address == address })
		if i < 0 {
			t.Fatalf("the plan has no %s", address)
		}
		return plan.Changes[i].Change.After["body"].(map[string]any)["properties"].(map[string]any)
	}
	for _, scope := range []tofu.Scope{tofu.ServiceCluster, tofu.ManagementCluster} {
		for reads, want := range map[bool][]string{false: {"guard", "kube-audit-admin"}, true: {"guard", "kube-audit"}} {
			setting := properties(plan(scope, func(config map[string]any) { config["audit"].(map[string]any)["clusterReads"] = reads }), "module.cluster.azapi_resource.audit")
			var categories []string
			for _, log := range setting["logs"].([]any) {
				if log := log.(map[string]any); log["enabled"] == true {
					categories = append(categories, log["category"].(string))
				}
			}
			if diff := cmp.Diff(want, categories); diff != "" || !strings.Contains(setting["storageAccountId"].(string), "/Microsoft.Storage/storageAccounts/hcpmprodusw3aks") {
				t.Errorf("%s with reads %t: the setting is %v:\n%s", scope, reads, setting, diff)
			}
		}
	}
	firewall := properties(plan(tofu.Region, func(config map[string]any) {
		config["ingress"].(map[string]any)["admin"].(map[string]any)["sources"] = []any{"198.51.100.0/24", "203.0.113.7/32", "CorporateNetwork"}
	}), "azapi_resource.cluster_audit")["networkAcls"].(map[string]any)
	allow := func(address string) any { return map[string]any{"value": address, "action": "Allow"} }
	want := map[string]any{"defaultAction": "Deny", "bypass": "AzureServices", "virtualNetworkRules": []any{}, "ipRules": []any{allow("198.51.100.0/24"), allow("203.0.113.7")}}
	if diff := cmp.Diff(want, firewall); diff != "" {
		t.Errorf("the firewall of the account (-want, +got):\n%s", diff)
	}
}

// TestPlanRejectsWrongBodies checks that a plan finds a property that Azure does not have, without a network.
func TestPlanRejectsWrongBodies(t *testing.T) {
	azuretest.Programs(t)
	copied := t.TempDir()
	must.Do(t, os.CopyFS(copied, os.DirFS(templates)))
	file := filepath.Join(copied, "region", "cosmos.tf")
	text := must.Get(os.ReadFile(file))(t)
	wrong := strings.Replace(string(text), "publicNetworkAccess ", "publicNetworkAcess ", 1)
	if wrong == string(text) {
		t.Fatal("the template has no publicNetworkAccess")
	}
	must.Do(t, os.WriteFile(file, []byte(wrong), 0o600))
	d := &deploy{scope: tofu.Region, target: region, templates: copied, outputs: placeholders(t, parse(t, region)), env: []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}}
	if _, err := d.workspace(t).Plan(t.Context(), false, false); err == nil || !strings.Contains(err.Error(), "properties.publicNetworkAcess") {
		t.Errorf("got %v", err)
	}
}

// placeholders returns outputs in place of those of applied outer scopes. TestInfrastructureLifecycle compares their form with that of real ones.
func placeholders(t *testing.T, target layer.Target) map[tofu.Scope]json.RawMessage {
	t.Helper()
	values := must.Get(open(t).Render(target))(t)
	text := func(keys ...string) string { return values.Get(keys...).Plain().(string) }
	id := func(subscription, group, rest string) string {
		return "/subscriptions/" + text("subscriptions", subscription) + "/resourceGroups/" + text("resourceGroups", group) + "/providers/" + rest
	}
	const principal = "00000000-0000-4000-8000-000000000001"
	identity := func(name string) map[string]any {
		return map[string]any{"id": id("region", "region", "Microsoft.ManagedIdentity/userAssignedIdentities/"+name), "name": name, "clientId": principal, "principalId": principal}
	}
	account := func(keys ...string) map[string]any {
		return map[string]any{"id": id("region", "region", "Microsoft.Storage/storageAccounts/"+text(keys...)), "url": "https://" + text(keys...) + ".example/"}
	}
	server := func(name string) map[string]any {
		return map[string]any{"id": id("region", "region", "Microsoft.DBforPostgreSQL/flexibleServers/"+text("postgres", name, "server")), "host": "example", "database": text("postgres", name, "database")}
	}
	registries, vaults, identities := map[string]any{}, map[string]any{}, map[string]any{}
	for _, name := range []string{text("registry", "services"), text("registry", "openshift")} {
		registries[name] = map[string]any{"id": id("global", "global", "Microsoft.ContainerRegistry/registries/"+name), "loginServer": name + ".example"}
	}
	for _, purpose := range []string{"service", "clusters", "identities"} {
		vaults[purpose] = map[string]any{"id": id("region", "region", "Microsoft.KeyVault/vaults/"+text("keyVaults", purpose)), "uri": "https://example/"}
	}
	for _, service := range []string{"frontend", "backend", "admin", "gateway-access", "gateway-egress", "monitor", "cluster-service", "maestro-server", "ingress-arm", "ingress-admin", "ingress-tunnels"} {
		identities[service] = identity(service)
	}
	var stamps []string
	if target.Level() == layer.Stamp {
		stamps = append(stamps, text("managementCluster", "name"))
	} else if list := values.Get("managementClusters"); list != nil {
		for _, stamp := range list.Plain().([]any) {
			stamps = append(stamps, stamp.(map[string]any)["name"].(string))
		}
	}
	tunnels, etcdKeys := map[string]any{}, map[string]any{}
	for _, stamp := range stamps {
		tunnels[stamp] = identity("tunnel-of-" + stamp)
	}
	if vault := values.Get("keyVaults", "etcd"); vault != nil {
		for _, cluster := range append(stamps, text("serviceCluster", "name")) {
			key := id("region", "region", "Microsoft.KeyVault/vaults/"+vault.Plain().(string)+"/keys/"+cluster+"-1")
			etcdKeys[cluster+"-1"] = map[string]any{"id": key, "uri": "https://example/keys/" + cluster + "-1/0123456789abcdef0123456789abcdef"}
		}
	}
	zone := func(name string) map[string]any {
		return map[string]any{"id": id("region", "region", "Microsoft.Network/dnsZones/"+name), "nameServers": []string{"ns1.example."}}
	}
	result := map[tofu.Scope]any{
		tofu.Global: map[string]any{
			"zone":       map[string]any{"id": id("global", "global", "Microsoft.Network/dnsZones/"+text("dns", "parentZone")), "nameServers": []string{"ns1.example."}},
			"registries": registries,
			"frontDoor":  id("global", "global", "Microsoft.Cdn/profiles/oidc"),
		},
		tofu.Region: map[string]any{
			"identities": identities, "migrations": map[string]any{"cluster-service": identity("cs-owner"), "maestro": identity("maestro-owner")},
			"tunnels":    tunnels,
			"provisions": map[string]any{"cluster-service": identity("cs-provision"), "maestro": identity("maestro-provision")},
			"cosmos":     map[string]any{"id": id("region", "region", "Microsoft.DocumentDB/databaseAccounts/"+text("cosmos", "account")), "endpoint": "https://example/", "database": "hcp"},
			"postgres":   map[string]any{"cluster-service": server("clusterService"), "maestro": server("maestro")},
			"events":     map[string]any{"id": id("region", "region", "Microsoft.EventGrid/namespaces/"+text("eventGrid", "namespace")), "mqttAddress": "example:8883"},
			"vaults":     vaults, "zone": zone(text("dns", "zone")), "clustersZone": zone(text("dns", "clustersZone")),
			"documents": account("oidc", "storageAccount"), "audit": map[string]any{"sink": account("audit", "sinkAccount"), "witness": account("audit", "witnessAccount")},
			"metrics":  map[string]any{"id": id("region", "region", "Microsoft.Monitor/accounts/m"), "query": "https://example"},
			"etcdKeys": etcdKeys, "clusterAudit": account("audit", "clusterAccount"),
		},
	}
	outputs := map[tofu.Scope]json.RawMessage{}
	for scope, value := range maps.All(result) {
		text := must.Get(json.Marshal(value))(t)
		outputs[scope] = text
	}
	return outputs
}
