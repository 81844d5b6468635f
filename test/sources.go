package test

import (
	"os"
	"testing"
)

// CodeVariable is the environment variable with a digest of all files but Markdown, which `make test` sets. Without it, run such tests
// with -count=1.
const CodeVariable = "HCPMESH_CODE"

// DependOnCode makes the result of the running test depend on all files but Markdown. The go command reuses a test result as long as the test
// binary, the environment variables and the files that the test read are unchanged. A region builds and runs programs during the test, and a rule
// lists packages with another program, which the cache does not see. The go command records which documents a test reads. DependOnCode has a testing.TB
// parameter because the go command does not record what TestMain reads.
func DependOnCode(testing.TB) { _ = os.Getenv(CodeVariable) }

// BuildRegion reports whether a test builds the programs of its region. `make test`, which sets CodeVariable, has built them.
func BuildRegion() bool { return os.Getenv(CodeVariable) == "" }
