package chart_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// replacing are the values that change an immutable field, with the field. Install refuses such a change, and docs/deploy/charts.md has the steps.
var replacing = map[string]string{"audit.storageClass": "spec.volumeClaimTemplates"}

// TestValuesChangeNoImmutableField renders the chart of each program with each of its values changed, one at a time. No value but those of
// replacing may change a field that the API server does not let an update change.
func TestValuesChangeNoImmutableField(t *testing.T) {
	reference := target(t, reference)
	found := map[string]string{}
	for _, w := range workload.All() {
		if !values.Applies(w, reference) {
			continue
		}
		loaded, err := chart.Load(filepath.Join(charttest.Root(t), filepath.FromSlash(w.Folder)))
		if err != nil {
			t.Fatal(err)
		}
		computed, err := values.Of(w, reference)
		if err != nil {
			t.Fatal(err)
		}
		original := plain(t, computed)
		before, err := loaded.Render(string(w.Peer), original)
		if err != nil {
			t.Fatal(err)
		}
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
