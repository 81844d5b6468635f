package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const configuration = "../../../../config"

// run runs the program and returns what it prints.
func run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"--config-dir", configuration}, arguments...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestVariables(t *testing.T) {
	dir := t.TempDir()
	for scope, outer := range map[string]string{"public/prod/global": `{"frontDoor": "id"}`, "public/prod/westus3/region": `{"zone": {"id": "zone"}}`} {
		file := filepath.Join(dir, filepath.FromSlash(scope)+".json")
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, []byte(outer), 0o600))
	}
	text := must.Get(run(t, "variables", "management-cluster", "public/prod/westus3/1", "--dir", dir))(t)
	var printed struct {
		Config struct {
			ManagementCluster struct{ Name string }
		}
		Outer struct {
			Global struct{ FrontDoor string }
			Region struct{ Zone struct{ ID string } }
		}
	}
	must.Do(t, json.Unmarshal([]byte(text), &printed))
	if printed.Config.ManagementCluster.Name != "mgmt-usw3-1" || printed.Outer.Global.FrontDoor != "id" || printed.Outer.Region.Zone.ID != "zone" {
		t.Errorf("printed are %+v", printed)
	}
}

func TestErrors(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "no-certificate")
	must.Do(t, os.WriteFile(file, []byte("text"), 0o600))
	for reason, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"an unknown scope":                    {[]string{"variables", "geography", "public/prod/westus3"}, `scope "geography" does not exist`},
		"an unknown region":                   {[]string{"variables", "global", "public/prod/nowhere"}, "public/prod/nowhere"},
		"outputs that do not exist":           {[]string{"variables", "region", "public/prod/westus3", "--dir", empty}, "needs the outputs of global"},
		"authorities of a scope without MQTT": {[]string{"variables", "global", "public/prod/westus3", "--mqtt-authority", "a=" + file}, "--mqtt-authority: only for the scope region"},
		"OpenTofu that is not built":          {[]string{"plan", "global", "public/prod/westus3", "--dir", empty, "--programs", empty}, "tooling/third-party/build.sh opentofu"},
	} {
		if _, err := run(t, c.arguments...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
