package chart_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// replacing are the values that change an immutable field, with the field. Install refuses such a change, and docs/deploy/charts.md has the steps.
var replacing = map[string]string{"audit.storageClass": "spec.volumeClaimTemplates"}

// TestValuesChangeNoImmutableField renders the chart of each program with each of its values changed, one at a time: to the first other
// value that the schema accepts, in `make nightly` to all of them. No value but those of replacing may change a field that the API server does
// not let an update change.
func TestValuesChangeNoImmutableField(t *testing.T) {
	reference := target(t, reference)
	found := map[string]string{}
	for _, w := range workload.All() {
		if !values.Applies(w, reference) {
			continue
		}
		loaded := must.Get(chart.Load(filepath.Join(charttest.Root(t), filepath.FromSlash(w.Folder))))(t)
		computed := must.Get(values.Of(w, reference))(t)
		original := plain(t, computed)
		before := must.Get(loaded.Render(string(w.Peer), original))(t)
		changed := 0
		for path, variants := range variants(original, nil) {
			for _, variant := range variants {
				v := plain(t, original)
				charttest.Set(t, v, strings.Split(path, "\x00"), variant)
				after, err := loaded.Render(string(w.Peer), v)
				if err != nil {
					continue // the schema of the values refuses it
				}
				changed++
				for _, field := range immutableChanges(before, after) {
					found[strings.ReplaceAll(path, "\x00", ".")] = field
				}
				if !nightly.Run() {
					break
				}
			}
		}
		if changed < 10 {
			t.Errorf("%s: only %d changed values were accepted", w.Peer, changed)
		}
	}
	if diff := cmp.Diff(replacing, found); diff != "" {
		t.Errorf("values that change immutable fields (-known +found):\n%s", diff)
	}
}

// TestTargetsHaveTheSameImmutableFields compares the charts of all regions and stamps: what one has is a change that another can get. Only the
// storage class of disks may differ.
func TestTargetsHaveTheSameImmutableFields(t *testing.T) {
	targets := charttest.Targets(t)
	first := map[string]chart.Objects{}
	for _, target := range targets {
		for name, objects := range charttest.RenderAll(t, target) {
			if first[name] == nil {
				first[name] = objects
			}
			for _, field := range immutableChanges(first[name], objects) {
				if field != replacing["audit.storageClass"] {
					t.Errorf("%s of %s differs from that of another target in %s", name, target.Name, field)
				}
			}
		}
	}
}

// TestReleaseHasTheSameImmutableFields compares the charts with those of the newest release, which regions have before a rollout of this checkout.
func TestReleaseHasTheSameImmutableFields(t *testing.T) {
	released := readReleasedObjects(t)
	compared := map[string]int{}
	for _, target := range charttest.Targets(t) {
		for name, objects := range charttest.RenderAll(t, target) {
			before := released[name+"/"+strings.ReplaceAll(target.Name, "/", "-")]
			for _, object := range before {
				compared[object.GetKind()]++
			}
			for _, field := range immutableChanges(before, objects) {
				t.Errorf("%s: chart %s: %s differs from that of the newest release: a rollout fails (docs/deploy/charts.md#replace-a-statefulset)", target.Name, name, field)
			}
		}
	}
	for _, kind := range []string{"StatefulSet", "Deployment", "Service", "ClusterRoleBinding", "PriorityClass"} {
		if compared[kind] == 0 {
			t.Errorf("no object of kind %s of the newest release was compared", kind)
		}
	}
}

// readReleasedObjects returns the objects that the charts of the newest release render, by chart and target, such as backend/public-prod-uksouth. They
// are in the golden files of its commit. It skips the test if the repository does not contain the commit.
func readReleasedObjects(t *testing.T) map[string]chart.Objects {
	t.Helper()
	root := charttest.Root(t)
	content, err := os.ReadFile(filepath.Join(root, "releases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Releases []struct{ Commit string } }
	if err := yaml.Unmarshal(content, &file); err != nil || len(file.Releases) == 0 {
		t.Fatalf("releases.yaml: %d releases, %v", len(file.Releases), err)
	}
	commit := file.Releases[len(file.Releases)-1].Commit
	if output, err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the history of this checkout has no commit %s of the newest release: %v: %s", commit, err, output)
	}
	archive := must.Get(exec.CommandContext(t.Context(), "git", "-C", root, "archive", commit, "tooling/charts/pkg/chart/testdata/golden").Output())(t)
	whole, differences := map[string]string{}, map[string]string{}
	manifests := map[string]string{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(reader))(t)
		name := path.Base(path.Dir(header.Name))
		switch target, extension := path.Base(header.Name), path.Ext(header.Name); extension {
		case ".yaml":
			whole[name] = string(content)
			manifests[name+"/"+strings.TrimSuffix(target, extension)] = string(content)
		case ".diff":
			differences[name+"/"+strings.TrimSuffix(target, extension)] = string(content)
		}
	}
	for key, difference := range differences {
		manifests[key] = applyDifference(t, whole[path.Dir(key)], difference)
	}
	objects := map[string]chart.Objects{}
	for key, manifest := range manifests {
		if objects[key], err = chart.Parse(manifest); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	return objects
}

// applyDifference applies a difference without context, as compareAll writes it.
func applyDifference(t *testing.T, whole, difference string) string {
	t.Helper()
	lines := difflib.SplitLines(whole)
	var result []string
	next := 0 // the index of the first line that is not yet in result
	for line := range strings.Lines(difference) {
		switch line[0] {
		case '@':
			var start, count int
			if n, _ := fmt.Sscanf(line, "@@ -%d,%d ", &start, &count); n == 0 {
				t.Fatalf("not the header of a hunk: %s", line)
			} else if n == 2 && count == 0 {
				start++ // lines are inserted after the line of the header
			}
			if start-1 < next || start-1 > len(lines) {
				t.Fatalf("the hunk is out of order or of another file: %s", line)
			}
			result = append(result, lines[next:start-1]...)
			next = start - 1
		case '-':
			if next == len(lines) || lines[next] != line[1:] {
				t.Fatalf("the difference is of another file: %s", line)
			}
			next++
		case '+':
			result = append(result, line[1:])
		}
	}
	return strings.Join(append(result, lines[next:]...), "")
}

// immutableChanges returns the immutable fields that two renderings of a chart have with different values.
func immutableChanges(before, after chart.Objects) []string {
	found := map[string]bool{}
	for _, a := range before {
		for _, b := range after {
			if chart.ID(a) == chart.ID(b) {
				for _, field := range slices.Concat(chart.ImmutableChanges(a, b), chart.ImmutableChanges(b, a)) {
					found[field] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// variants returns other values for each field and element, by path. A nil removes a field. The parts of a path are separated by a zero byte.
func variants(at any, path []string) map[string][]any {
	found := map[string][]any{}
	key := strings.Join(path, "\x00")
	switch node := at.(type) {
	case map[string]any:
		for name, value := range node {
			maps.Copy(found, variants(value, append(slices.Clone(path), name)))
			field := strings.Join(append(slices.Clone(path), name), "\x00")
			found[field] = append(found[field], nil)
		}
	case []any:
		for i, value := range node {
			at := append(slices.Clone(path), fmt.Sprint(i))
			for name, others := range variants(value, at) {
				if name != strings.Join(at, "\x00") {
					found[name] = others
					continue
				}
				for _, other := range others { // an element is changed with its list
					list := slices.Clone(node)
					list[i] = other
					found[key] = append(found[key], list)
				}
			}
		}
		if len(node) > 0 {
			found[key] = append(found[key], node[:len(node)-1])
		}
	case float64:
		found[key] = []any{node + 1}
	case bool:
		found[key] = []any{!node}
	case string:
		found[key] = []any{"1" + node, node + "1"}
		if node == values.CSI {
			found[key] = []any{values.Secret}
		}
		for i, c := range node { // same length and kind of characters, such as a digest
			if c >= '0' && c <= '9' {
				found[key] = append(found[key], node[:i]+string('0'+('9'-c))+node[i+1:])
				break
			}
		}
	}
	return found
}
