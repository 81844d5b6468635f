package vmsize

import (
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	names := Names()
	if len(names) != 166 || !slices.IsSorted(names) {
		t.Errorf("%d sizes, want 166 in order", len(names))
	}
	arm := 0
	for _, name := range names {
		if architecture, _ := ArchitectureOf(name); architecture == ARM64 {
			arm++
		}
	}
	if arm != 48 {
		t.Errorf("%d sizes are %s, want 48", arm, ARM64)
	}
	for name, want := range map[string]Architecture{
		"Standard_D8s_v3": AMD64, "Standard_D2pds_v6": ARM64, "Standard_E96ps_v6": ARM64, "Standard_E104is_v5": AMD64, "Standard_NC24ads_A100_v4": AMD64,
		"standard_d8s_v3": "", "Standard_B4ms": "", "": "",
	} {
		if got, ok := ArchitectureOf(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestLines: every line is a comment, or a size and its architecture.
func TestLines(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(table) {
		name, architecture, ok := parse(line)
		switch {
		case strings.HasPrefix(line, "#") && !ok:
		case !ok, !strings.HasPrefix(name, "Standard_"), architecture != AMD64 && architecture != ARM64, seen[name]:
			t.Errorf("%q is not a size with an architecture, or a duplicate", line)
		}
		seen[name] = ok
	}
}
