// Package sources makes cached results of whole-region tests depend on all sources. The go command reuses a test result as long
// as the test binary, the environment variables and the files that the test read are unchanged. A region builds and runs
// programs during the test, which the cache does not see.
package sources

import (
	"os"
	"testing"
)

// The environment variables with digests, which `make test` sets: of all files, and of all files but Markdown. Without them, run such
// tests with -count=1.
const (
	AllVariable  = "HCPMESH_SOURCES"
	CodeVariable = "HCPMESH_CODE"
)

// DependOnAll makes the result of the running test depend on all files. It has a testing.TB parameter because the go command does not
// record what TestMain reads.
func DependOnAll(testing.TB) { _ = os.Getenv(AllVariable) }

// DependOnCode makes the result of the running test depend on all files but Markdown. It is for tests that run a region and read no
// documents.
func DependOnCode(testing.TB) { _ = os.Getenv(CodeVariable) }
