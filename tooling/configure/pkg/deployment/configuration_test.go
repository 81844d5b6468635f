package deployment

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// fixture is a configuration with two regions, the first of which has a stamp.
var fixture = map[string]string{
	"config.schema.json": `{"type": "object", "additionalProperties": false, "required": ["account", "shared"], "properties": {
		"cloud": {"type": "string", "x-computed": true}, "environment": {"type": "string", "x-computed": true},
		"region": {"type": "string", "x-computed": true}, "stamp": {"type": "string", "x-computed": true},
		"account": {"type": "string", "x-unique": "cloud", "x-data-store": true},
		"shared": {"type": "string", "x-unique": "cloud", "x-layer": "environment"},
		"digest": {"type": "string", "x-deploy": true},
		"frontend": {"type": "object", "additionalProperties": false, "properties": {"image": {"$ref": "#/$defs/image"}}},
		"managementCluster": {"type": "object", "additionalProperties": false, "properties": {"name": {"type": "string", "x-unique": "environment"}}, "x-layer": "stamp"},
		"managementClusters": {"type": "array", "items": {"type": "object"}, "x-computed": true}},
		"$defs": {"image": {"type": "object", "additionalProperties": false, "properties": {"repository": {"type": "string"}, "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}}}}}`,
	"rules.yaml":                     "rules: [{name: no-x, scope: region, keys: [account], reason: why, assert: account != 'x'}]",
	"defaults.yaml":                  "account: \"a-${region}\"\nshared: s\nmanagementCluster: {name: \"m-${region}-${stamp}\"}\n",
	"clouds/public.yaml":             "",
	"clouds/public/dev.yaml":         "",
	"clouds/public/dev/east.yaml":    "",
	"clouds/public/dev/west.yaml":    "",
	"clouds/public/dev/west/1.yaml":  "",
	"clouds/public/prod.yaml":        "shared: t\n",
	"clouds/public/prod/west.yaml":   "account: p\n",
	"clouds/public/prod/west/1.yaml": "",
}

// write writes the fixture with some files replaced; a file with the content "-" is left out.
func write(t *testing.T, dir string, changed map[string]string) {
	t.Helper()
	files := map[string]string{}
	for _, part := range []map[string]string{fixture, changed} {
		for name, text := range part {
			files[name] = text
		}
	}
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if text == "-" {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			continue
		}
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

func open(t *testing.T, dir string) *Configuration {
	t.Helper()
	return must.Get(Open(dir))(t)
}

func TestRenderContainsStamps(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, nil)
	all := must.Get(open(t, dir).CheckAll())(t)
	want := map[string]any{"cloud": "public", "environment": "dev", "region": "west", "account": "a-west", "shared": "s",
		"managementClusters": []any{map[string]any{"name": "m-west-1"}}}
	if diff := cmp.Diff(want, all["public/dev/west"].Plain()); diff != "" {
		t.Error(diff)
	}
	if name := all["public/dev/west/1"].Get("managementCluster", "name"); name.Value != "m-west-1" {
		t.Errorf("the stamp's name is %v", name.Value)
	}
}

func TestCheckAllFindsProblems(t *testing.T) {
	for reason, c := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"a broken rule":                {map[string]string{"clouds/public/dev/east.yaml": "account: x\n"}, "clouds/public/dev/east.yaml:1: account: breaks the rule no-x"},
		"a name twice in the cloud":    {map[string]string{"clouds/public/dev/east.yaml": "account: p\n"}, "p of public/prod/west is also the value of public/dev/east"},
		"a shared name in two":         {map[string]string{"clouds/public/prod.yaml": ""}, "shared: s of public/prod is also the value of public/dev"},
		"a region's key in a stamp":    {map[string]string{"clouds/public/dev/west/1.yaml": "account: y\n"}, "clouds/public/dev/west/1.yaml:1: account: may be set for a region and outside of it, but not for a stamp"},
		"an environment's in a region": {map[string]string{"clouds/public/dev/east.yaml": "shared: y\n"}, "shared: may be set for an environment"},
		"a missing key":                {map[string]string{"clouds/public/dev.yaml": "shared: null\n"}, "clouds/public/dev.yaml: shared: is required, and no layer sets it (layer environment public/dev)"},
		"a name twice in stamps":       {map[string]string{"clouds/public/dev/west/1.yaml": "managementCluster: {name: same}\n", "clouds/public/dev/west/2.yaml": "managementCluster: {name: same}\n"}, "same of public/dev/west/2 is also the value of public/dev/west/1"},
		"a reference to nothing":       {map[string]string{"clouds/public/dev/east.yaml": "account: \"${nothing}\"\n"}, "refers to nothing, which no layer"},
	} {
		dir := t.TempDir()
		write(t, dir, c.changed)
		if _, err := open(t, dir).CheckAll(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", reason, err, c.want)
		}
	}
}

func TestProblemsOfOneRegionDoNotConcernAnother(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"clouds/public/dev/east.yaml": "unknown: 1\n"})
	c := open(t, dir)
	if _, err := c.Render(layer.Target{"public", "dev", "west"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Render(layer.Target{"public", "dev", "east"}); err == nil {
		t.Error("the region with an unknown key was rendered")
	}
}

func TestWriteRefusesLoss(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, nil)
	save := func(allowed ...string) ([]string, error) {
		c := open(t, dir)
		all := must.Get(c.CheckAll())(t)
		return c.Write(all, allowed)
	}
	if changed, err := save(); err != nil || len(changed) != 5 {
		t.Fatalf("wrote %v, %v", changed, err)
	}
	if changed, err := save(); err != nil || changed != nil {
		t.Fatalf("the second time wrote %v, %v", changed, err)
	}
	write(t, dir, map[string]string{"clouds/public/prod/west.yaml": "account: other\n", "clouds/public/dev/west/1.yaml": "-"})
	var lost *LossError
	_, err := save()
	if !errors.As(err, &lost) || !strings.Contains(err.Error(), "public/prod/west: account changes from p to other") || !strings.Contains(err.Error(), "--allow-loss public/dev/west/1") {
		t.Fatalf("got %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, RenderedFolder, "public/prod/west.yaml")); !strings.Contains(string(text), "account: p\n") {
		t.Errorf("a refused change was written: %s", text)
	}
	if _, err := save("public/prod/west:account"); !errors.As(err, &lost) {
		t.Fatalf("the removal of a stamp was not refused: %v", err)
	}
	if _, err := save("public/prod/west:account", "public/dev/west/1", "public/dev/east"); err == nil || !strings.Contains(err.Error(), "public/dev/east: the change does not") {
		t.Fatalf("an unused permission was accepted: %v", err)
	}
	changed, err := save("public/prod/west:account", "public/dev/west/1")
	if err != nil || !cmp.Equal(changed, []string{"public/dev/west.yaml", "public/prod/west.yaml", "public/prod/west/1.yaml", "public/dev/west/1.yaml"}) {
		t.Fatalf("wrote %v, %v", changed, err)
	}
	c := open(t, dir)
	all, _ := c.CheckAll()
	if stale, err := c.Stale(all); err != nil || stale != nil {
		t.Errorf("stale after writing: %v, %v", stale, err)
	}
}

// frontendImage is a layer that deploys the frontend.
const frontendImage = "account: \"a-${region}\"\nshared: s\nmanagementCluster: {name: \"m-${region}-${stamp}\"}\nfrontend: {image: {repository: test/frontend}}\n"

func TestImagesOfAnEnvironment(t *testing.T) {
	dir, digest := t.TempDir(), "sha256:"+strings.Repeat("a", 64)
	write(t, dir, map[string]string{"defaults.yaml": frontendImage, "images/public/dev.yaml": "frontend: {image: {digest: \"" + digest + "\"}}\n"})
	c := open(t, dir)
	for name, want := range map[string]string{"dev": digest, "prod": ""} {
		images, err := c.Images(layer.Target{"public", name})
		if err != nil || !cmp.Equal(images, []Image{{"frontend.image", "test/frontend", want}}) {
			t.Errorf("%s: %v, %v", name, images, err)
		}
	}
	values, err := c.Render(layer.Target{"public", "dev", "west"})
	if err != nil || values.Get("frontend", "image", "digest").Value != digest {
		t.Errorf("the region has %v, %v", values, err)
	}
	for reason, c := range map[string]struct{ name, text, want string }{
		"a tag":            {"images/public/dev.yaml", "frontend: {image: {digest: latest}}\n", "images/public/dev.yaml:1: frontend.image.digest: \"latest\" does not match"},
		"an unknown image": {"images/public/dev.yaml", "frontned: {image: {digest: \"" + digest + "\"}}\n", "frontned: unknown key; did you mean frontend?"},
		"two repositories": {"clouds/public/dev/east.yaml", "frontend: {image: {repository: test/other}}\n", "frontend.image.repository: is test/frontend for public/dev/west, and test/other for another target of public/dev"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"defaults.yaml": frontendImage, c.name: c.text})
		if _, err := open(t, dir).Images(layer.Target{"public", "dev"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", reason, err, c.want)
		}
	}
	if _, err := c.Images(layer.Target{"public"}); err == nil || !strings.Contains(err.Error(), "public is not an environment") {
		t.Errorf("a cloud: %v", err)
	}
	if _, err := c.Images(layer.Target{"public", "none"}); !errors.Is(err, layer.ErrUnknown) {
		t.Errorf("an unknown environment: %v", err)
	}
}

// TestProblemsOfImagesConcernTheirEnvironment checks that an environment with wrong images is not rendered, and that others are.
func TestProblemsOfImagesConcernTheirEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"images/public/dev.yaml": "account: x\n"})
	c := open(t, dir)
	if _, err := c.Render(layer.Target{"public", "dev", "west"}); err == nil || !strings.Contains(err.Error(), "account: a layer of images may set only") {
		t.Errorf("%v", err)
	}
	if _, err := c.Render(layer.Target{"public", "prod", "west"}); err != nil {
		t.Error(err)
	}
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"clouds/public/prod.yaml": "shared: t\ndigest: d\n"})
	c := open(t, dir)
	for name, want := range map[string]int{"public/dev/west": 1, "public/prod/west": 0} {
		target, _ := layer.ParseTarget(name)
		values := must.Get(c.Render(target))(t)
		if missing := c.Missing(target, values); len(missing) != want {
			t.Errorf("%s lacks %v", name, missing)
		}
	}
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, nil)
	c := open(t, dir)
	keys := func(first, then string, resolved bool) string {
		a, _ := layer.ParseTarget(first)
		b, _ := layer.ParseTarget(then)
		found := must.Get(c.Diff(a, b, resolved))(t)
		var keys []string
		for _, d := range found {
			keys = append(keys, d.Key)
		}
		return strings.Join(keys, " ")
	}
	if got := keys("public/dev", "public/prod", false); got != "shared" {
		t.Errorf("environments differ in %q", got)
	}
	if got := keys("public/dev/east", "public/dev/west", false); got != "" {
		t.Errorf("regions differ in %q", got)
	}
	if got := keys("public/dev/east", "public/dev/west", true); got != "account" {
		t.Errorf("resolved regions differ in %q", got)
	}
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, nil)
	values := must.Get(open(t, dir).Render(layer.Target{"public", "prod", "west"}))(t)
	var layers []string
	for _, n := range History(values.Get("account")) {
		layers = append(layers, n.Origin.Layer)
	}
	if want := []string{"region public/prod/west", "defaults"}; !cmp.Equal(layers, want) {
		t.Errorf("got %v, want %v", layers, want)
	}
}
