// Package sources makes cached results of whole-region tests depend on all sources. The go command reuses a test result as long
// as the test binary, the environment variables and the files that the test read are unchanged. A region builds and runs
// programs of other modules during the test, which the cache does not see.
package sources

import (
	"os"
	"testing"
)

// Variable is the environment variable with a digest of all files, which `make test` sets. Without it, run such tests with -count=1.
const Variable = "HCPMESH_SOURCES"

// DependOnAll makes the result of the running test depend on all sources. It has a testing.TB parameter because the go command
// does not record what TestMain reads.
func DependOnAll(testing.TB) { _ = os.Getenv(Variable) }
