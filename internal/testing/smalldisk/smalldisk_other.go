//go:build !linux

package smalldisk

import "testing"

// Run skips the test: mount namespaces exist on Linux only.
func Run(t *testing.T, _ int64, _ func(t *testing.T, dir string)) {
	t.Helper()
	t.Skip("mount namespaces exist on Linux only")
}

// Mount fails the test: it may be called only within Run.
func Mount(t *testing.T, _ string, _ int64) {
	t.Helper()
	t.Fatal("Mount was called outside Run")
}
