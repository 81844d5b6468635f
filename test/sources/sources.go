// Package sources tells go test's cache what a test of the whole depends on. The cache gives the result of a test again for
// as long as the test's binary is the same, and the variables and the files in the test's own module that it reads are. But
// a region runs programs that are built from other modules while the test runs, of which the cache knows nothing.
package sources

import (
	"os"
	"testing"
)

// Variable holds a digest of all files of the repository, as `make test` sets it. By hand, such a test needs -count=1.
const Variable = "HCPMESH_SOURCES"

// DependOnAll makes the result of the running test count for these sources only. It asks for a test because what is read
// before one runs, in TestMain, is not noted.
func DependOnAll(testing.TB) { _ = os.Getenv(Variable) }
