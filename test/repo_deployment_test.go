package test

import (
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
