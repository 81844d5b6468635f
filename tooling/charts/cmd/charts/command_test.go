package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
)

// configuration copies the configuration into a checkout of its own, with a digest of the frontend's image.
func configuration(t *testing.T) string {
	t.Helper()
	root := charttest.Root(t)
	top := t.TempDir()
	for _, folder := range []string{"config", "frontend/deploy/templates", "dev-infrastructure/charts/service"} {
		must.Do(t, os.CopyFS(filepath.Join(top, folder), os.DirFS(filepath.Join(root, folder))))
	}
	for _, file := range []string{"Chart.yaml", "values.schema.json"} {
		text := must.Get(os.ReadFile(filepath.Join(root, "frontend/deploy", file)))(t)
		must.Do(t, os.WriteFile(filepath.Join(top, "frontend/deploy", file), text, 0o644))
	}
	must.Do(t, os.Mkdir(filepath.Join(top, "frontend/deploy/charts"), 0o755))
	must.Do(t, os.Symlink("../../../dev-infrastructure/charts/service", filepath.Join(top, "frontend/deploy/charts/service")))
	region := filepath.Join(top, "config/clouds/public/int/uksouth.yaml")
	text := must.Get(os.ReadFile(region))(t)
	text = append(text, "frontend: {image: {digest: \"sha256:"+strings.Repeat("0a", 32)+"\"}}\n"...)
	must.Do(t, os.WriteFile(region, text, 0o644))
	return filepath.Join(top, "config")
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestCommands(t *testing.T) {
	dir := configuration(t)
	outputs := filepath.Join(t.TempDir(), "outputs.yaml")
	must.Do(t, os.WriteFile(outputs, []byte("clientIds: {frontend-int-uks: 00000000-0000-0000-0000-000000000001}\n"), 0o644))
	wrong := filepath.Join(t.TempDir(), "outputs.yaml")
	must.Do(t, os.WriteFile(wrong, []byte("identities: {}\n"), 0o644))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"list":    {[]string{"list"}, "frontend/deploy"},
		"values":  {[]string{"values", "--config-dir", dir, "--outputs", outputs, "public/int/uksouth", "frontend"}, "location: uksouth"},
		"mesh":    {[]string{"values", "--config-dir", dir, "public/int/uksouth", "mesh"}, "meshRevision: asm-1-29"},
		"a stamp": {[]string{"values", "--config-dir", dir, "public/int/uksouth/1", "cluster"}, "- maestro-agent"},
		"render":  {[]string{"render", "--config-dir", dir, "--outputs", outputs, "public/int/uksouth", "frontend"}, "hcpmesh/frontend@sha256:0a0a"},
	} {
		if out, err := run(c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an unknown chart":     {[]string{"values", "--config-dir", dir, "public/int/uksouth", "frontends"}, `unknown chart "frontends"`},
		"a stamp":              {[]string{"values", "--config-dir", dir, "public/int/uksouth/1", "frontend"}, "the chart frontend needs a region"},
		"an environment":       {[]string{"values", "--config-dir", dir, "public/int", "cluster"}, "charts need a region or a stamp"},
		"a mesh on a stamp":    {[]string{"values", "--config-dir", dir, "public/int/uksouth/1", "mesh"}, "the chart mesh needs a region"},
		"an agent in a region": {[]string{"values", "--config-dir", dir, "public/int/uksouth", "maestro-agent"}, "the chart maestro-agent needs a stamp"},
		"an unknown region":    {[]string{"values", "--config-dir", dir, "public/int/nowhere", "frontend"}, "nowhere"},
		"an unknown provider":  {[]string{"values", "--config-dir", dir, "--secrets", "file", "public/int/uksouth", "frontend"}, "--secrets"},
		"a mesh without Istio": {[]string{"values", "--config-dir", dir, "public/local/westus3", "mesh"}, "the chart mesh needs Istio, and serviceCluster.identity is not mesh"},
		"MISE in development":  {[]string{"values", "--config-dir", dir, "public/dev/westus3", "mise"}, "the chart mise needs the key mise, and no layer sets it"},
		"MISE without Istio":   {[]string{"values", "--config-dir", dir, "public/local/westus3", "mise"}, "the chart mise needs Istio"},
		"MISE on a stamp":      {[]string{"values", "--config-dir", dir, "public/int/uksouth/1", "mise"}, "the chart mise needs a region"},
		"MISE without image":   {[]string{"values", "--config-dir", dir, "public/int/uksouth", "mise"}, "mise.image.digest: is required for a deployment, and no layer sets it"},
		"gateways' identities": {[]string{"values", "--config-dir", dir, "public/int/uksouth", "ingress"}, "managed identity ingress-arm-int-uks is missing"},
		"no outputs":           {[]string{"render", "--config-dir", dir, "public/int/uksouth", "frontend"}, "managed identity frontend-int-uks is missing"},
		"an unknown output":    {[]string{"render", "--config-dir", dir, "--outputs", wrong, "public/int/uksouth", "frontend"}, `unknown field "identities"`},
		"an image of no build": {[]string{"render", "--config-dir", dir, "--outputs", outputs, "public/dev/westus3", "frontend"}, "frontend.image.digest: is required for a deployment"},
	} {
		if out, err := run(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q\n%s", name, err, c.want, out)
		}
	}
}
