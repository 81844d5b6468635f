// Package nightly separates the tests that prove the system, which take hours, from those that protect a change.
package nightly

import (
	"os"
	"testing"
)

// Variable is the environment variable that `make nightly` and `make prove` set to 1.
const Variable = "HCPMESH_NIGHTLY"

// Run reports whether all tests run, completely.
func Run() bool { return os.Getenv(Variable) == "1" }

// Only skips a test that `make test` leaves out.
func Only(t testing.TB) {
	t.Helper()
	if !Run() {
		t.Skip("make nightly runs it; set " + Variable + "=1")
	}
}

// Choose returns the value of a setting of a test, such as its number of clusters: all in a nightly run, otherwise part.
func Choose[T any](part, all T) T {
	if Run() {
		return all
	}
	return part
}
