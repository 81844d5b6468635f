package test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	frontendconfig "github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// deploymentFolder is the folder of the deployments' configuration, relative to the repository's root.
const deploymentFolder = "config"

// deploymentConfiguration opens the configuration of the repository.
func deploymentConfiguration(t *testing.T) *deployment.Configuration {
	t.Helper()
	c, err := deployment.Open(filepath.Join(root(t), deploymentFolder))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRenderedConfigurationIsCurrent checks the configuration of all regions and stamps, and that config/rendered has it.
func TestRenderedConfigurationIsCurrent(t *testing.T) {
	c := deploymentConfiguration(t)
	all, err := c.CheckAll()
	if err != nil {
		t.Fatal(err)
	}
	stale, err := c.Stale(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(stale) > 0 {
		t.Errorf("out of date: %v: run hcpctl config render --write", stale)
	}
	environments := map[string]bool{}
	for name := range all {
		target, _ := layer.ParseTarget(name)
		environments[target[:layer.Environment].String()] = true
	}
	for _, environment := range []string{"public/dev", "public/int", "public/stage", "public/prod", "usgov/prod"} {
		if !environments[environment] {
			t.Errorf("the environment %s has no region", environment)
		}
	}
}

// BenchmarkRenderAll reads, checks and renders all regions and stamps. The target is 5 seconds.
func BenchmarkRenderAll(b *testing.B) {
	for b.Loop() {
		c, err := deployment.Open(filepath.Join("..", deploymentFolder))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.CheckAll(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestConfigurationMistakesAreFound appends a mistake to a file of each layer, and expects the error that docs/deploy/configuration.md
// shows or one like it.
func TestConfigurationMistakesAreFound(t *testing.T) {
	reported := map[string]bool{}
	for reason, c := range map[string]struct{ file, text, want string }{
		"an unknown key in the defaults":   {"defaults.yaml", "extra: {a: 1}", "defaults.yaml:LAST: extra: unknown key; known keys are"},
		"a wrong value in the defaults":    {"defaults.yaml", "logLevel: verbose", "defaults.yaml:LAST: logLevel: value must be one of 'debug', 'info', 'warn', 'error' (layer defaults)"},
		"a wrong type in a cloud":          {"clouds/usgov.yaml", "telemetry: {traceRatio: all}", "clouds/usgov.yaml:LAST: telemetry.traceRatio: is a string; it must be a number (layer cloud usgov)"},
		"a misspelt key in an environment": {"clouds/public/int.yaml", "backend: {replcas: 3}", "clouds/public/int.yaml:LAST: backend.replcas: unknown key; did you mean replicas? (layer environment public/int)"},
		"a wrong certificate in a region":  {"clouds/public/int/uksouth.yaml", "ingress: {arm: {certificate: {dnsName: rp.other.example}}}", "clouds/public/int/uksouth.yaml:LAST: ingress.arm.certificate.dnsName: breaks the rule arm-certificate-for-host"},
		"a wrong zone in a region":         {"clouds/public/int/uksouth.yaml", "dns: {zone: uks.other.example}", "clouds/public/int/uksouth.yaml:LAST: dns.zone: breaks the rule zone-in-parent-zone"},
		"a wrong value in a stamp":         {"clouds/public/int/uksouth/1.yaml", "managementCluster: {network: {pods: 10.0.0.0/22}}", "managementCluster.network: breaks the rule management-network"},
		"a region's key in a stamp":        {"clouds/public/int/uksouth/1.yaml", "frontend: {replicas: 5}", "clouds/public/int/uksouth/1.yaml:LAST: frontend.replicas: may be set for a region and outside of it, but not for a stamp"},
		"a cloud's key in a region":        {"clouds/public/int/uksouth.yaml", "endpoints: {azureCloud: AzurePublicCloud}", "endpoints.azureCloud: may be set for a cloud and outside of it, but not for a region"},
		"a secret in a region":             {"clouds/public/int/uksouth.yaml", "frontend: {credentialKey: c2VjcmV0}", "clouds/public/int/uksouth.yaml:LAST: frontend.credentialKey: is a secret: it needs a reference"},
		"a missing secret":                 {"clouds/public/int/uksouth.yaml", "frontend: {credentialKey: null}", "clouds/public/int/uksouth.yaml: frontend.credentialKey: is required, and no layer sets it (layer region public/int/uksouth)"},
		"a deletion of nothing":            {"clouds/public/int/uksouth.yaml", "backend: {other: null}", "backend.other: unknown key"},
		"a vault of another region":        {"clouds/public/int/uksouth.yaml", "keyVaults: {service: hcpm-prod-uks-svc}", "keyVaults.service: hcpm-prod-uks-svc of public/prod/uksouth is also the value of public/int/uksouth"},
		"a production without zones":       {"clouds/public/prod/westus3.yaml", "availabilityZones: [\"1\"]", "breaks the rule production-zones"},
		"keys of two modes":                {"clouds/public/int.yaml", "frontend: {authentication: {mode: token}}", "frontend.authentication.audience: is required"},
		"admin from everywhere":            {"clouds/public/int.yaml", "ingress: {admin: {sources: [\"0.0.0.0/0\"]}}", "ingress.admin.sources: breaks the rule admin-sources"},
		"a portal without its certificate": {"clouds/public/int.yaml", "pipelines: {without: [region/certificate-portal]}", "admin.portal: breaks the rule portal-complete"},
		"a portal that admin refuses":      {"clouds/public/int/uksouth.yaml", "admin: {authentication: {clientIds: [d6f3a1f2-6f5b-4b35-9f0e-1c64a1f5c3aa]}}", "admin.portal: breaks the rule portal-application"},
		"a frontend without MISE":          {"clouds/public/int.yaml", "mise: null", "mise: breaks the rule mise-complete"},
		"MISE that nobody asks":            {"clouds/public/dev.yaml", "pipelines: {without: []}", "mise: breaks the rule mise-complete"},
		"another service in MISE's place":  {"clouds/public/int.yaml", "frontend: {authentication: {checkUrl: \"http://other.mise.svc:8080/ValidateRequest\"}}", "frontend.authentication: breaks the rule mise-check-url"},
		"one pod of MISE in production":    {"clouds/public/prod.yaml", "mise: {replicas: 1}", "production: breaks the rule production-replicas"},
		"a limit below MISE's request":     {"clouds/public/int.yaml", "mise: {resources: {memoryLimitMiB: 128}}", "ingress.gateway.resources: breaks the rule memory-limits"},
		"an egress gateway without chart":  {"clouds/public/int.yaml", "pipelines: {without: [gateway-egress/deploy]}", "gatewayEgress: breaks the rule gateway-egress-complete"},
		"an approval that Azure ignores":   {"clouds/public/int.yaml", "gatewayEgress: {privateLink: {visibility: [00000000-0000-4000-8000-000000000001], autoApproval: [00000000-0000-4000-8000-000000000001]}}", "gatewayEgress: breaks the rule gateway-egress-approval"},
		"one link with all connections":    {"clouds/public/int.yaml", "gatewayEgress: {connectionsPerLink: 20000}", "gatewayEgress: breaks the rule gateway-egress-limits"},
		"sessions at the origin of admin":  {"clouds/public/int.yaml", "gatewayAccess: {endpoint: \"https://${ingress.admin.host}\"}", "clouds/public/int.yaml:LAST: gatewayAccess.endpoint: breaks the rule gateway-access-endpoint"},
		"a release without a mirror":       {"clouds/public/int.yaml", "registry: {releases: [\"quay.io/other/release@sha256:" + strings.Repeat("a", 64) + "\"]}", "clouds/public/int.yaml:LAST: registry.releases: breaks the rule release-has-mirror"},
		"a part of Azure's left out":       {"clouds/public/int.yaml", "pipelines: {without: [admin]}", "clouds/public/int.yaml:LAST: pipelines.without: breaks the rule pipelines-complete"},
		"a part of a region left out":      {"clouds/public/int/uksouth.yaml", "pipelines: {without: [admin]}", "pipelines.without: may be set for an environment and outside of it, but not for a region"},
		"too many sessions":                {"clouds/public/int.yaml", "maestro: {server: {replicas: 9}}", "eventGrid.sessionsPerClient: breaks the rule mqtt-sessions"},
		"a password in a database's URL":   {"clouds/public/int.yaml", "clusterService: {databaseOwnerUrl: \"postgres://owner:hunter2@db.example.com/fleet?sslmode=verify-full\"}", "clouds/public/int.yaml:LAST: clusterService.databaseOwnerUrl: "},
		"a database that is not verified":  {"clouds/public/int.yaml", "clusterService: {databaseUrl: \"postgres://cluster_service@${postgres.clusterService.server}.${endpoints.postgresSuffix}/fleet?sslmode=require\"}", "clusterService.databaseUrl: "},
		"a certificate for Azure's server": {"clouds/public/int.yaml", "clusterService: {databaseAuthentication: certificate}", "clusterService.databaseAuthentication: breaks the rule cluster-service-database-authentication"},
		"a token for a foreign server":     {"clouds/public/int.yaml", "clusterService: {databaseUrl: \"postgres://cluster_service@db.example.com/fleet?sslmode=verify-full\"}", "breaks the rule cluster-service-database-server"},
		"a database that nobody creates":   {"clouds/public/int.yaml", "maestro: {server: {databaseOwnerUrl: \"postgres://maestro_owner@${postgres.maestro.server}.${endpoints.postgresSuffix}/other?sslmode=verify-full\"}}", "breaks the rule maestro-database-server"},
		"a service that owns its tables":   {"clouds/public/int.yaml", "clusterService: {databaseRole: cluster_service_owner}", "breaks the rule cluster-service-database-roles"},
		"one identity for two roles":       {"clouds/public/int.yaml", "maestro: {server: {provisionIdentity: \"${maestro.server.migrationIdentity}\"}}", "breaks the rule maestro-database-identities"},
		"an unknown authentication":        {"clouds/public/int.yaml", "maestro: {server: {databaseAuthentication: password}}", "maestro.server.databaseAuthentication: "},
		"sizes with a gap":                 {"clouds/public/int/uksouth/1.yaml", "managementCluster: {hypershiftOperator: {sizes: [{name: small, maxNodes: 60, requestsInflight: 150, mutatingRequestsInflight: 50, memory: {etcd: 1Gi}}]}}", "clouds/public/int/uksouth/1.yaml:LAST: managementCluster.hypershiftOperator.sizes: breaks the rule hypershift-operator-sizes"},
		"a simulator in Azure":             {"clouds/public/int.yaml", "managementCluster: {hypershiftRuntime: {image: {registry: r.example.com, repository: r}, resources: {cpuMillicores: 100, memoryMiB: 256, memoryLimitMiB: 512}, fidelity: status, kubeAPIServer: {image: {registry: r.example.com, repository: k}}, etcd: {image: {registry: r.example.com, repository: e}}}}", "managementCluster.hypershiftRuntime: breaks the rule hypershift-runtime-platform"},
		"production that pages nobody":     {"clouds/public/prod/westus3.yaml", "telemetry: {alertReceivers: {pages: {emails: []}}}", "breaks the rule production-pages"},
		"a webhook with a secret":          {"clouds/public/int.yaml", "telemetry: {alertReceivers: {pages: {webhooks: [{name: w, endpoint: \"https://hooks.example.com/a?code=s\", objectId: 5ef6b126-3d80-5621-babb-69d461225910, identifierUri: \"api://hook\"}]}}}", "telemetry.alertReceivers.pages.webhooks"},
		"a key of etcd without a vault":    {"clouds/public/int.yaml", "keyVaults: {etcd: null}", "breaks the rule service-etcd-key"},
		"a key of etcd outside of AKS":     {"clouds/public/local/westus3/1.yaml", "managementCluster: {etcdKey: 1}", "managementCluster.etcdKey: breaks the rule management-etcd-key"},
		"certificates that nobody issues":  {"clouds/public/int.yaml", "serviceCluster: {identity: certificates}", "clouds/public/int.yaml:LAST: serviceCluster.identity: breaks the rule service-identity"},
		"sidecars without Istio":           {"clouds/public/local.yaml", "serviceCluster: {platform: kubernetes, identity: mesh}", "clouds/public/local.yaml:LAST: serviceCluster.identity: breaks the rule service-identity"},
		"too many connections":             {"clouds/public/int.yaml", "clusterService: {databaseConnections: 100}", "postgres.clusterService.maxConnections: breaks the rule cluster-service-database-connections"},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), deploymentFolder)
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(root(t), deploymentFolder))); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.FromSlash(c.file))
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			key, _, _ := strings.Cut(c.text, ":")
			text = regexp.MustCompile(`(?m)^`+key+`:.*\n(?:[ -].*\n|\n)*`).ReplaceAll(text, nil) // the appended key replaces it
			text = append(text, "\n"+c.text+"\n"...)
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			opened, err := deployment.Open(dir)
			if err == nil {
				_, err = opened.CheckAll()
			}
			want := strings.ReplaceAll(c.want, "LAST", fmt.Sprint(strings.Count(string(text), "\n")))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v\nwant %s", err, want)
			}
			for line := range strings.Lines(strings.ReplaceAll(err.Error(), filepath.ToSlash(dir), deploymentFolder)) {
				reported[withoutLineNumbers(line)] = true
			}
		})
	}
	text, err := os.ReadFile(filepath.Join(root(t), "docs/deploy/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## Errors"))
	documented := regexp.MustCompile(`(?m)^    (config/.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(documented) < 5 {
		t.Errorf("docs/deploy/configuration.md shows only %d errors", len(documented))
	}
	for _, level := range []string{"defaults", "cloud ", "environment ", "region ", "stamp "} {
		if !slices.ContainsFunc(documented, func(line []string) bool { return strings.Contains(line[1], "(layer "+level) }) {
			t.Errorf("docs/deploy/configuration.md shows no error of the layer %s", level)
		}
	}
	for _, line := range documented {
		if !reported[withoutLineNumbers(line[1])] {
			t.Errorf("docs/deploy/configuration.md shows an error that no mistake of this test causes: %s", line[1])
		}
	}
}

var lineNumber = regexp.MustCompile(`\.yaml:\d+`)

func withoutLineNumbers(line string) string {
	return strings.TrimSpace(lineNumber.ReplaceAllString(line, ".yaml"))
}

// schemaKeywords are the keywords that the schema may use. Errors of others, such as anyOf, do not name the wrong key.
var schemaKeywords = []string{"$ref", "type", "description", "properties", "required", "additionalProperties", "propertyNames", "items", "enum", "const", "pattern",
	"minimum", "maximum", "minLength", "minItems", "uniqueItems", "if", "then", "else", "title", "$schema", "$id", "$defs",
	"x-layer", "x-computed", "x-unique", "x-data-store", "x-deploy", "x-configures", "x-used-by"}

// keyUsers are the values of x-used-by. A key that is used by references alone is part of other values.
var keyUsers = []string{"infrastructure", "charts", "pipelines", "rules", "references"}

// secretName matches the names of keys that must be references to secrets; publicNames are the exceptions.
var secretName, publicNames = regexp.MustCompile(`(?i)(password|token|secret|key|url)$`), []string{"checkUrl", "issuerUrl", "updateGraphUrl", "databaseUrl", "databaseOwnerUrl", "databaseAdministratorUrl"}

// TestConfigurationSchemaIsStrict checks that the schema has no open maps, that each key is documented and used, and that keys with
// the name of a secret are references.
func TestConfigurationSchemaIsStrict(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), deploymentFolder, deployment.SchemaFile))
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	for _, complaint := range looseSchemas("#", raw) {
		t.Error(complaint)
	}
	described := deploymentConfiguration(t).Schema
	described.Walk(func(path []string, p *schema.Property) {
		key, last := strings.Join(path, "."), path[len(path)-1]
		if p.Description == "" {
			t.Errorf("%s has no description", key)
		}
		partOfReference := len(path) > 1 && described.Lookup(path[:len(path)-1]...).Secret()
		if p.Type == "string" && secretName.MatchString(last) && !slices.Contains(publicNames, last) && !partOfReference {
			t.Errorf("%s has the name of a secret and is not a reference to one", key)
		}
		if p.Type != "object" && len(p.UsedBy) == 0 && len(p.Configures) == 0 {
			t.Errorf("%s has no user: set x-configures or x-used-by", key)
		}
		for _, user := range p.UsedBy {
			if !slices.Contains(keyUsers, user) {
				t.Errorf("%s: x-used-by: %q is not one of %v", key, user, keyUsers)
			}
		}
		if p.Level() < 0 {
			t.Errorf("%s: x-layer: %q is not a level", key, p.Layer)
		}
	})
}

// looseSchemas returns the parts of a schema with unknown keywords, and objects that accept unknown keys.
func looseSchemas(at string, node map[string]any) []string {
	var found []string
	for _, keyword := range slices.Sorted(maps.Keys(node)) {
		if !slices.Contains(schemaKeywords, keyword) {
			found = append(found, at+": the keyword "+keyword+" is not allowed")
		}
	}
	if node["type"] == "object" && node["additionalProperties"] == nil || node["additionalProperties"] == true {
		found = append(found, at+" accepts unknown keys")
	}
	for _, keyword := range []string{"properties", "$defs"} {
		children, _ := node[keyword].(map[string]any)
		for name, child := range children {
			if child, ok := child.(map[string]any); ok {
				found = append(found, looseSchemas(at+"/"+keyword+"/"+name, child)...)
			}
		}
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if child, ok := node[keyword].(map[string]any); ok {
			found = append(found, looseSchemas(at+"/"+keyword, child)...)
		}
	}
	slices.Sort(found)
	return found
}

const (
	unsetBegin = "<!-- unset flags: generated by go test ./test -run TestConfigurationKeysAreFlags -update -->\n"
	unsetEnd   = "<!-- end of unset flags -->\n"
)

// TestConfigurationKeysAreFlags checks that each flag that a key of the configuration names exists. It compares the table of the flags that neither a
// key nor a chart sets with the page of the flags.
func TestConfigurationKeysAreFlags(t *testing.T) {
	defined, set := map[string]*flag.FlagSet{}, map[string]bool{}
	for name, program := range programs() {
		defined[name] = flagSet(name, program)
	}
	charttest.Configuration(t).Schema.Walk(func(path []string, p *schema.Property) {
		for _, use := range p.Configures {
			program, name, isFlag := strings.Cut(use, " --")
			program, _, _ = strings.Cut(program, " ")
			switch {
			case defined[program] == nil:
				t.Errorf("%s: x-configures: %q names an unknown program", strings.Join(path, "."), use)
			case isFlag && defined[program].Lookup(name) == nil:
				t.Errorf("%s: x-configures: %s has no flag --%s", strings.Join(path, "."), program, name)
			}
			set[program+" "+name] = true
		}
	})
	eachProgram(t, func(_ *testing.T, _ renderedChart, program string, arguments []string, _ *corev1.PodTemplateSpec) {
		for _, argument := range arguments {
			name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
			set[program+" "+name] = true
		}
	})
	var table strings.Builder
	table.WriteString("\n| program | flags |\n|---|---|\n")
	for _, program := range slices.Sorted(maps.Keys(defined)) {
		var unset []string
		defined[program].VisitAll(func(f *flag.Flag) {
			if !set[program+" "+f.Name] {
				unset = append(unset, "`--"+f.Name+"`")
			}
		})
		fmt.Fprintf(&table, "| %s | %s |\n", program, strings.Join(unset, ", "))
	}
	compareGenerated(t, configurationPage, unsetBegin, unsetEnd, table.String()+"\n")
}

// TestFrontendOffersZonesOfRegions checks that the offer of the frontend, which is built in, has no zones that a region does not have.
func TestFrontendOffersZonesOfRegions(t *testing.T) {
	offered, err := frontendconfig.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range charttest.Targets(t) {
		zones := deployment.String(target.Configuration.Get("availabilityZones"))
		for _, zone := range offered.AvailabilityZones {
			if !strings.Contains(zones, zone) {
				t.Errorf("the frontend offers zone %s, and %s has %s", zone, target.Name, zones)
			}
		}
	}
}

// keysPage documents the keys of the configuration. Its tables are generated between the two markers.
const keysPage = "docs/deploy/configuration-keys.md"

const (
	keysBegin = "<!-- keys: generated by go test ./test -run TestConfigurationKeysPage -update -->\n"
	keysEnd   = "<!-- end of keys -->\n"
)

// TestConfigurationKeysPage compares docs/deploy/configuration-keys.md with the schema and the rules. With -update it rewrites it.
func TestConfigurationKeysPage(t *testing.T) {
	c := deploymentConfiguration(t)
	var text strings.Builder
	c.Schema.Walk(func(path []string, p *schema.Property) {
		if len(path) == 1 {
			fmt.Fprintf(&text, "\n### %s\n\n", path[0])
			if p.Type == "object" {
				text.WriteString(p.Description + "\n\n")
			}
			text.WriteString("| key | meaning | innermost layer | used by |\n|---|---|---|---|\n")
		}
		if p.Type == "object" && !p.Secret() && len(path) == 1 || len(path) > 1 && c.Schema.Lookup(path[:len(path)-1]...).Secret() {
			return
		}
		text.WriteString(keyRow(path, p))
	})
	text.WriteString("\n### Rules\n\n| rule | for each | reason |\n|---|---|---|\n")
	for _, r := range c.Rules {
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", r.Name(), r.Scope(), r.Reason())
	}
	text.WriteString("\n")
	compareGenerated(t, keysPage, keysBegin, keysEnd, text.String())
}

func keyRow(path []string, p *schema.Property) string {
	meaning := p.Description
	if limits := p.Limits(); limits != "" {
		meaning += " Values: " + limits + "."
	}
	if p.Secret() {
		meaning += " Reference to a secret."
	}
	if p.DataStore {
		meaning += " A change needs `--allow-loss`."
	}
	if p.Unique != "" {
		meaning += " Unique in the " + string(p.Unique) + "."
	}
	innermost := p.Layer
	if p.Computed {
		innermost = "computed"
	}
	var users []string
	for _, use := range p.Configures {
		users = append(users, "`"+use+"`")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.Join(path, "."), strings.ReplaceAll(meaning, "|", "\\|"), innermost, strings.Join(append(users, p.UsedBy...), ", "))
}

// TestRolesForWholeStores lists the roles that the templates assign for a vault with everything in it, or for appending to all blobs of a container. All others are
// for one secret or one key, or have a condition on the names of blobs.
func TestRolesForWholeStores(t *testing.T) {
	want := map[string]string{
		"region certificates_role":           "local.vaults.clusters: local.roles.certificatesOfficer for local.principals[\"cluster-service\"]",
		"region recordings_append_role":      "azapi_resource.recordings.id: local.append_id for local.principals[\"gateway-access\"]",
		"management-cluster identities_role": "var.outer.region.vaults.identities.id: local.secretsUser for module.cluster.secrets_provider.objectId",
	}
	module, argument := regexp.MustCompile(`(?ms)^module "(\w+)" \{\n(.*?)^\}`), regexp.MustCompile(`(?m)^  (\w+) += (.*)$`)
	got, roles := map[string]string{}, 0
	files, err := filepath.Glob(filepath.Join(root(t), "dev-infrastructure", "azure", "*", "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Glob(filepath.Join(root(t), "dev-infrastructure", "azure", "modules", "*", "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, modules...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(file))
		if strings.Contains(string(text), "types.roleAssignment") && folder != "role" {
			t.Errorf("%s assigns a role without the module role", file)
		}
		for _, found := range module.FindAllStringSubmatch(string(text), -1) {
			arguments := map[string]string{}
			for _, a := range argument.FindAllStringSubmatch(found[2], -1) {
				arguments[a[1]] = a[2]
			}
			scope := arguments["scope"]
			if !strings.HasSuffix(arguments["source"], `/role"`) {
				continue
			}
			roles++
			appends := arguments["role"] == "local.append_id" || arguments["role"] == "local.witness_id"
			if strings.Contains(scope, "vaults") && !strings.Contains(scope, "/secrets/${") || strings.Contains(scope, "module.vault") || appends && arguments["condition"] == "" {
				got[folder+" "+found[1]] = scope + ": " + arguments["role"] + " for " + arguments["principal"]
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || roles < 10 {
		t.Errorf("of %d roles, those for whole stores differ (-want +got):\n%s", roles, diff)
	}
}
