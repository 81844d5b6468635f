package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// folder writes a configuration with two environments.
func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "config")
	for name, text := range map[string]string{
		"config.schema.json": `{"type": "object", "additionalProperties": false, "properties": {
			"cloud": {"type": "string", "x-computed": true}, "environment": {"type": "string", "x-computed": true}, "region": {"type": "string", "x-computed": true},
			"managementClusters": {"type": "array", "items": {"type": "object"}, "x-computed": true},
			"account": {"type": "string", "description": "Name of the account.", "x-data-store": true, "x-used-by": ["infrastructure"]},
			"replicas": {"type": "integer", "minimum": 1, "maximum": 9, "description": "Number of pods.", "x-configures": ["frontend --replicas"]},
			"graph": {"type": "string"}, "digest": {"type": "string", "x-deploy": true}}}`,
		"rules.yaml":                  "rules: [{name: few, scope: region, keys: [replicas], reason: it is small, assert: replicas < 5}]",
		"defaults.yaml":               "account: \"a-${region}\"\nreplicas: 2\ngraph: https://graph.example\n",
		"clouds/public.yaml":          "",
		"clouds/public/dev.yaml":      "# Developers have no graph.\ngraph: null\n",
		"clouds/public/dev/west.yaml": "",
		"clouds/public/prod.yaml":     "# Customers wait for it.\nreplicas: 3\n", "clouds/public/prod/west.yaml": "",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

// run executes a command line and returns its output, in which config is the configuration's folder, and its error.
func run(dir string, arguments ...string) (string, error) {
	root, out := New("configure"), &bytes.Buffer{}
	root.SetOut(out)
	root.SetErr(out)
	root.SetArgs(append(arguments, "--config-dir", dir))
	err := root.Execute()
	return strings.ReplaceAll(out.String(), filepath.ToSlash(dir), "config"), err
}

func TestOutput(t *testing.T) {
	for line, want := range map[string]string{
		"list":                     "public/dev/west\npublic/prod/west\n",
		"validate":                 "2 regions and stamps are valid\n",
		"validate public/dev/west": "",
		"render public/prod/west":  "account: a-west\ncloud: public\nenvironment: prod\ngraph: https://graph.example\nmanagementClusters: []\nregion: west\nreplicas: 3\n",
		"explain replicas": "key         replicas\nmeaning     Number of pods.\nvalues      1 to 9\nconfigures  frontend --replicas\nset by      defaults to region\nrules       few\n" +
			"\nTARGET            VALUE  LAYER                    FILE\n" +
			"public/dev/west   2      defaults                 config/defaults.yaml:2\n" +
			"public/prod/west  3      environment public/prod  config/clouds/public/prod.yaml:2\n",
		"explain replicas public/prod/west": "key         replicas\nmeaning     Number of pods.\nvalues      1 to 9\nconfigures  frontend --replicas\nset by      defaults to region\nrules       few\n" +
			"\nreplicas of public/prod/west is 3\n  set by environment public/prod (config/clouds/public/prod.yaml:2)\n    because: Customers wait for it.\n  overrides defaults (config/defaults.yaml:2): 2\n",
		"explain account public/dev/west": "key      account\nmeaning  Name of the account.\nused by  infrastructure\nset by   defaults to region\n" +
			"\naccount of public/dev/west is a-west\n  set by defaults (config/defaults.yaml:1): a-${region}\n",
		"explain graph public/dev/west": "key     graph\nset by  defaults to region\n" +
			"\npublic/dev/west does not have the key.\n  deleted by environment public/dev (config/clouds/public/dev.yaml:2)\n    because: Developers have no graph.\n  overrides defaults (config/defaults.yaml:3): https://graph.example\n",
		"diff public/dev public/prod": "graph\n  public/dev   not set                \n  public/prod  https://graph.example  config/defaults.yaml:3\n" +
			"replicas\n  public/dev   2  config/defaults.yaml:2\n  public/prod  3  config/clouds/public/prod.yaml:2\n",
		"diff public/dev public/dev": "public/dev and public/dev do not differ\n",
	} {
		got, err := run(folder(t), strings.Fields(line)...)
		if err != nil || got != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", line, err, got, want)
		}
	}
}

// TestExplainNamesTheLayerOfImages explains a digest that an environment's images set.
func TestExplainNamesTheLayerOfImages(t *testing.T) {
	dir := folder(t)
	for name, text := range map[string]string{
		"config.schema.json": `{"type": "object", "properties": {"cloud": {"type": "string"}, "environment": {"type": "string"}, "region": {"type": "string"}, "managementClusters": {"type": "array", "items": {"type": "object"}},
			"frontend": {"type": "object", "properties": {"image": {"$ref": "#/$defs/image"}}}},
			"$defs": {"image": {"type": "object", "properties": {"digest": {"type": "string", "x-deploy": true}}}}}`,
		"rules.yaml": "rules: []\n", "defaults.yaml": "", "clouds/public/dev.yaml": "", "clouds/public/prod.yaml": "",
		"images/public/prod.yaml": "# Written by a program.\nfrontend:\n  image:\n    digest: sha256:12\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
	}
	out, err := run(dir, "explain", "frontend.image.digest", "public/prod/west")
	if err != nil || !strings.Contains(out, "frontend.image.digest of public/prod/west is sha256:12\n  set by images public/prod (config/images/public/prod.yaml:4)\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := run(dir, "render", "public/prod/west", "--deploy"); err != nil {
		t.Errorf("render --deploy: %v", err)
	}
}

func TestRenderWriteAndCheck(t *testing.T) {
	dir := folder(t)
	if _, err := run(dir, "render", "--check"); err == nil || !strings.Contains(err.Error(), "public/dev/west.yaml, public/prod/west.yaml") {
		t.Errorf("check before writing: %v", err)
	}
	if out, err := run(dir, "render", "--write"); err != nil || out != "wrote rendered/public/dev/west.yaml\nwrote rendered/public/prod/west.yaml\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := run(dir, "render", "--check"); err != nil {
		t.Errorf("check after writing: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "clouds/public/dev/west.yaml"), []byte("account: other\n"), 0o644))
	if _, err := run(dir, "render", "--write"); err == nil || !strings.Contains(err.Error(), "--allow-loss public/dev/west:account") {
		t.Errorf("another account: %v", err)
	}
	if _, err := run(dir, "render", "--write", "--allow-loss", "public/dev/west:account"); err != nil {
		t.Errorf("an allowed other account: %v", err)
	}
}

func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		"render":                                "name a TARGET, or set --write or --check",
		"render public/dev/west --write":        "name a TARGET, or set --write or --check",
		"render public/dev/west --allow-loss x": "--allow-loss: needs --write",
		"render --check --deploy":               "--deploy: needs a TARGET",
		"render public/dev/west --deploy":       "digest: is required for a deployment, and no layer sets it",
		"render public/dev":                     "public/dev is not a region or a stamp",
		"render public/dev/east":                "unknown target: public/dev/east",
		"render public/../..":                   `the environment ".." does not match`,
		"validate public/dev/west/x":            `the stamp "x" does not match`,
		"explain nothing":                       "nothing: the schema has no such key",
		"explain replicas public/none/west":     "unknown target",
		"diff public/dev public/dev --resolved": "is not a region or a stamp",
		"diff public/dev":                       "accepts 2 arg(s), received 1",
	} {
		if _, err := run(folder(t), strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}
