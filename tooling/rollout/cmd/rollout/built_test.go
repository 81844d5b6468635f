package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
)

// builtImages writes a list of images with the repositories of an environment.
func builtImages(t *testing.T, environment layer.Target) string {
	t.Helper()
	found := must.Get(deployment.Find())(t)
	configuration := must.Get(deployment.Open(found))(t)
	images := must.Get(configuration.Images(environment))(t)
	list := imagelist.List{Images: map[string]imagelist.Image{}}
	for _, image := range images {
		list.Images[strings.ReplaceAll(image.Repository, "/", "-")] = imagelist.Image{Repository: image.Repository, Digest: "sha256:" + strings.Repeat("a", 64), Version: "1.0.0"}
	}
	text := must.Get(json.Marshal(list))(t)
	file := filepath.Join(t.TempDir(), "images.json")
	must.Do(t, os.WriteFile(file, text, 0o600))
	return file
}

// TestBuiltImagesCompleteARegionOfNodes plans the region of a machine with the images of a build: each step runs or is left out.
func TestBuiltImagesCompleteARegionOfNodes(t *testing.T) {
	const region = "public/local/westus3"
	stateDir := t.TempDir()
	if out, err := run(t, "plan", region, "--state-dir", stateDir); exitCode(err) != exitRefused || !strings.Contains(err.Error(), ".image.digest: is required for a deployment") {
		t.Errorf("without images: %v\n%s", err, out)
	}
	out, err := run(t, "plan", region, "--state-dir", stateDir, "-o", "json", "--images", builtImages(t, layer.Target{"public", "local"}))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var shown struct{ Steps []shownDecision }
	must.Do(t, json.Unmarshal([]byte(out), &shown))
	runs := 0
	for _, step := range shown.Steps {
		switch step.Verdict {
		case plan.Run, plan.MayRun:
			runs++
		case plan.LeftOut:
		default:
			t.Errorf("%s is %s: %v", step.Step, step.Verdict, step.Reasons)
		}
	}
	if runs == 0 {
		t.Error("no step runs")
	}
}

func TestBuiltImagesAreRefused(t *testing.T) {
	file := builtImages(t, layer.Target{"public", "prod"})
	for region, c := range map[string]struct{ file, want string }{
		"public/prod/westus3": {file, "--images: public/prod/westus3 is a region of production: write the digests into its configuration with image-updater"},
		"public/dev/westus3":  {filepath.Join(t.TempDir(), "none.json"), "--images: open "},
		"public/int/uksouth":  {"/dev/null", "--images: /dev/null: "},
	} {
		if _, err := run(t, "plan", region, "--state-dir", t.TempDir(), "--images", c.file); exitCode(err) != exitRefused || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %s", region, err, c.want)
		}
	}
}
