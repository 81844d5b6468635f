package supplychain_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// buildProgram builds a package and returns the program's path. Programs of tests themselves do not list
// their modules. folder is in the module of the package and relative to that of the test.
func buildProgram(t *testing.T, folder, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	command := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, pkg)
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, output)
	}
	return path
}
