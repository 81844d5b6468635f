package node_test

import (
	"errors"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/node"
)

// TestValidatorFindsViolations runs the tests of the validator of recorded traffic, which `make oav` runs. It skips if Node is not available.
func TestValidatorFindsViolations(t *testing.T) {
	nightly.Only(t)
	const validator = "../oav"
	if err := node.Prepare(t.Context(), validator); errors.Is(err, node.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	output, err := node.Command(t.Context(), validator, "--test", "judge.test.mjs").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
