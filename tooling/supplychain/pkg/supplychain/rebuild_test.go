package supplychain_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

// TestProgramIsReproducible builds the smallest program of the repository with the cache of this machine and without a cache. `make
// release` builds all programs, each time without a cache.
func TestProgramIsReproducible(t *testing.T) {
	nightly.Only(t)
	into := t.TempDir()
	o := supplychain.BuildOptions{Source: "../../../..", Flags: supplychain.BuildFlags(), Caches: [2]string{cache(t), ""}}
	programs := must.Get(supplychain.BuildTwice(t.Context(), o, into, "./tooling/configure/cmd/configure"))(t)
	if len(programs) != 1 || programs[0].Path != filepath.Join(into, "configure") || len(programs[0].SHA256) != 64 {
		t.Fatalf("%+v", programs)
	}
	if output, err := exec.CommandContext(t.Context(), programs[0].Path, "-help").CombinedOutput(); !strings.Contains(string(output), "configure") {
		t.Errorf("%s: %v", output, err)
	}
}

// cache returns the build cache of this machine.
func cache(t *testing.T) string {
	t.Helper()
	folder := must.Get(exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output())(t)
	return strings.TrimSpace(string(folder))
}

// TestDifferencesAreFound builds a program that contains the folder of its sources.
func TestDifferencesAreFound(t *testing.T) {
	source, into := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	for name, text := range map[string]string{
		"go.mod":          "module example\n\ngo 1.26.0\n",
		"cmd/a/main.go":   "package main\n\nfunc main() { panic(0) }\n",
		"cmd/b/main.go":   "package main\n\nfunc main() {}\n",
		"cmd/bad/main.go": "package main\n\nfunc main() { missing() }\n",
		"ignored":         "x",
		".gitignore":      "ignored\n",
	} {
		path := filepath.Join(source, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	if output, err := exec.CommandContext(t.Context(), "git", "init", "-q", source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	o := supplychain.BuildOptions{Source: source, Caches: [2]string{cache(t), cache(t)}, Flags: []string{"-buildvcs=false"}}
	_, err := supplychain.BuildTwice(t.Context(), o, into, "./cmd/a", "./cmd/b")
	if err == nil || !strings.Contains(err.Error(), "./cmd/a is not reproducible") {
		t.Errorf("a program with the folder of its sources: %v", err)
	}
	if _, err := os.Stat(into); !os.IsNotExist(err) {
		t.Errorf("the programs were stored: %v", err)
	}
	o.Flags = supplychain.BuildFlags()
	if programs, err := supplychain.BuildTwice(t.Context(), o, into, "./cmd/a", "./cmd/b"); err != nil || len(programs) != 2 {
		t.Errorf("%+v, %v", programs, err)
	}
	if _, err := supplychain.BuildTwice(t.Context(), o, into, "./cmd/bad"); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("a program that does not compile: %v", err)
	}
}
