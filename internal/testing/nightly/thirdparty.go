package nightly

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// ThirdParty returns the folder of the programs and definitions that tooling/third-party/build.sh builds in the repository that contains the test.
func ThirdParty() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".build", "third-party"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("finding the repository: no go.mod above the test's folder")
		}
	}
}

// Program returns the path of a third-party program that a region does not need. argument is that of build.sh, and program is the last one
// that it builds then, relative to ThirdParty. A nightly run builds what is missing. Another run skips the test without the program.
func Program(t testing.TB, argument, program string) string {
	t.Helper()
	folder := must.Get(ThirdParty())(t)
	if Run() {
		script := filepath.Join(folder, "..", "..", "tooling", "third-party", "build.sh")
		if output, err := exec.CommandContext(t.Context(), script, argument).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", argument, err, output)
		}
	}
	path := filepath.Join(folder, program)
	if _, err := os.Stat(path); err != nil {
		if Run() {
			t.Fatal(err)
		}
		t.Skipf("%s is not built: run tooling/third-party/build.sh %s", program, argument)
	}
	return path
}
