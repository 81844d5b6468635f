package assemble_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/assemble"
)

// root is the repository's root.
const root = "../../../.."

// TestImagesOfTheRepository checks that the programs and pins of the list exist. A test of the whole repository checks that every program
// has an image or a reason to have none.
func TestImagesOfTheRepository(t *testing.T) {
	images := must.Get(assemble.LoadImages(filepath.Join(root, "tooling/images/images.yaml")))(t)
	for _, image := range images {
		for _, program := range image.Programs {
			file := filepath.Join(root, program.Package, "main.go")
			if program.Pin != "" {
				file = filepath.Join(root, program.Pin, "go.mod")
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("image %s: %v", image.Name, err)
			}
		}
	}
}

func TestWrongDefinitionsAreRefused(t *testing.T) {
	const good = "name: a, repository: r/a, title: A"
	for reason, c := range map[string]struct{ text, want string }{
		"nothing":                 {"images: []", "images: there is none"},
		"an unknown field":        {"images: [{nam: a}]", "field nam not found"},
		"two documents":           {"images: [{" + good + ", programs: [{package: ./a}]}]\n---\nimages: []", "more than one YAML document"},
		"no program":              {"images: [{" + good + "}]", "images[0].programs: there is none"},
		"an upper-case name":      {"images: [{name: A, repository: r/a, title: A, programs: [{package: ./a}]}]", "images[0].name"},
		"a tag":                   {"images: [{name: a, repository: \"r/a:latest\", title: A, programs: [{package: ./a}]}]", "images[0].repository"},
		"no title":                {"images: [{name: a, repository: r/a, programs: [{package: ./a}]}]", "images[0].title: is empty"},
		"two images with a name":  {"images: [{" + good + ", programs: [{package: ./a}]}, {" + good + ", programs: [{package: ./a}]}]", "images[1].name: a is the name of another image"},
		"no package":              {"images: [{" + good + ", programs: [{name: a}]}]", "images[0].programs[0].package: is empty"},
		"no pin":                  {"images: [{" + good + ", programs: [{package: example.test/a}]}]", "images[0].programs[0].pin"},
		"a pin of our own":        {"images: [{" + good + ", programs: [{package: ./a, pin: p}]}]", "images[0].programs[0].pin"},
		"another name of our own": {"images: [{" + good + ", programs: [{package: ./a, name: b}]}]", "images[0].programs[0].name"},
		"a program twice":         {"images: [{" + good + ", programs: [{package: ./a}, {package: ./x/a}]}]", "images[0].programs[1].name: a is the name of another program"},
		"files from above":        {"images: [{" + good + ", programs: [{package: ./a}], files: [{pin: p, module: m, folder: ../x, into: y}]}]", "images[0].files[0].folder"},
		"files at the root":       {"images: [{" + good + ", programs: [{package: ./a}], files: [{pin: p, module: m, folder: x, into: /y}]}]", "images[0].files[0].into"},
	} {
		if _, err := assemble.ParseImages([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", reason, err, c.want)
		}
	}
}
