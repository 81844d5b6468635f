package chart_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

var update = flag.Bool("update", false, "rewrite the golden files and the schemas of values")

// reference is the region, and referenceStamp the stamp, whose objects a golden file has as a whole. The files of all others have the
// difference.
const reference, referenceStamp = "public/prod/uksouth", "public/prod/uksouth/1"

func text(t *testing.T, objects chart.Objects) string {
	t.Helper()
	var all bytes.Buffer
	for _, object := range objects {
		document := must.Get(yaml.Marshal(object.Object))(t)
		all.WriteString("---\n")
		all.Write(document)
	}
	return all.String()
}

// TestSchemasOfValuesAreCurrent compares values.schema.json of each chart with the schema that follows from the configuration.
func TestSchemasOfValuesAreCurrent(t *testing.T) {
	configuration := charttest.Configuration(t)
	for _, w := range workload.All() {
		want := must.Get(values.SchemaOf(w, configuration.Schema))(t)
		file := filepath.Join(charttest.Root(t), filepath.FromSlash(w.Folder), "values.schema.json")
		if *update {
			must.Do(t, os.WriteFile(file, want, 0o644))
		}
		have, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is out of date (%v): run the test with -update", fmt.Sprint(file), err)
		}
	}
}

// TestChartsMatchGoldens renders each chart for each region or stamp.
func TestChartsMatchGoldens(t *testing.T) {
	rendered := map[string]map[string]string{}
	for _, target := range charttest.Targets(t) {
		for name, objects := range charttest.RenderAll(t, target) {
			if rendered[name] == nil {
				rendered[name] = map[string]string{}
			}
			rendered[name][target.Name] = text(t, objects)
		}
	}
	for name, targets := range rendered {
		compareAll(t, name, targets)
	}
}

// compareAll compares what a chart renders for each target with its golden files.
func compareAll(t *testing.T, name string, rendered map[string]string) {
	t.Helper()
	whole := rendered[reference]
	if whole == "" {
		whole = rendered[referenceStamp]
	}
	if whole == "" { // a program of rehearsals
		whole = rendered[slices.Sorted(maps.Keys(rendered))[0]]
	}
	want := map[string]string{}
	for target, got := range rendered {
		file := strings.ReplaceAll(target, "/", "-")
		if got == whole {
			want[file+".yaml"] = whole
			continue
		}
		difference := must.Get(difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(whole), B: difflib.SplitLines(got), Context: 0}))(t)
		want[file+".diff"] = difference
	}
	dir := filepath.Join("testdata", "golden", name)
	if *update {
		must.Do(t, os.RemoveAll(dir))
		must.Do(t, os.MkdirAll(dir, 0o755))
		for file, content := range want {
			must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
		}
	}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, entry := range entries {
		if _, ok := want[entry.Name()]; !ok {
			t.Errorf("%s/%s is the golden file of no region: run the test with -update", dir, entry.Name())
		}
	}
	for file, content := range want {
		have, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || string(have) != content {
			t.Errorf("%s/%s is out of date (%v): if the change is right, run the test with -update", dir, file, err)
		}
	}
}
