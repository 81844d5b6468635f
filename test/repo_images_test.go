package test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// programsWithoutImage are the programs that run in a checkout, or outside of Kubernetes.
var programsWithoutImage = map[string]string{
	"dev-infrastructure/installation/cmd/kubernetes-region": "runs in a checkout",
	"dev-infrastructure/kubernetes/cmd/kubernetes-node":     "starts the nodes on which images run",
	"dev-infrastructure/kubernetes/cmd/pause":               "the nodes import it before they can pull images",
	"dev-infrastructure/cmd/region-programs":                "has the programs of a region on one machine",
	"hypershift/cmd/log-forwarder":                          "runs in local regions: it reads files of one folder, and cannot read the logs of pods",
	"tooling/charts/cmd/charts":                             "runs in a checkout",
	"tooling/configure/cmd/configure":                       "runs in a checkout",
	"tooling/image-sync/cmd/image-sync":                     "runs in a pipeline's checkout",
	"tooling/image-updater/cmd/image-updater":               "runs in a checkout",
	"tooling/images/cmd/images":                             "runs in a checkout",
	"tooling/infrastructure/cmd/infrastructure":             "runs in a checkout",
	"tooling/mesh-policies/cmd/mesh-policies":               "runs in a checkout",
	"tooling/registry/cmd/registry":                         "serves the images to the nodes",
	"tooling/rollout/cmd/rollout":                           "runs in a checkout",
	"tooling/supplychain/cmd/supplychain":                   "runs in a checkout",
	"tooling/trace-store/cmd/trace-store":                   "serves a region on one machine",
}

// TestProgramsHaveImages checks that every program is in an image of tooling/images/images.yaml or has a reason to be in none.
func TestProgramsHaveImages(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(root(t), "tooling/images/images.yaml")))(t)
	var list struct {
		Images []struct {
			Programs []struct{ Package string }
		}
	}
	must.Do(t, yaml.Unmarshal(text, &list))
	inImage := map[string]bool{}
	for _, image := range list.Images {
		for _, program := range image.Programs {
			inImage[strings.TrimPrefix(program.Package, "./")] = true
		}
	}
	programs := map[string]bool{}
	walk(t, func(name string) {
		if path.Base(name) == "main.go" && path.Base(path.Dir(path.Dir(name))) == "cmd" {
			programs[path.Dir(name)] = true
		}
	})
	for program := range programs {
		switch reason := programsWithoutImage[program]; {
		case inImage[program] && reason != "":
			t.Errorf("%s is in an image and in programsWithoutImage", program)
		case !inImage[program] && reason == "":
			t.Errorf("%s is in no image: add it to tooling/images/images.yaml, or to programsWithoutImage with a reason", program)
		}
	}
	for program := range programsWithoutImage {
		if !programs[program] {
			t.Errorf("%s in programsWithoutImage does not exist", program)
		}
	}
}
