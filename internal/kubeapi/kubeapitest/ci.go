package kubeapitest

import (
	"os"
	"testing"
)

// SkipUnlessCI ends a test whose requirements are not built. It skips the test on a developer's machine and fails it in
// continuous integration, where the environment variable CI is "true", so that CI never passes without running the test.
func SkipUnlessCI(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
