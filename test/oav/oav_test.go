// Package oav tests the validation of recorded traffic against the OpenAPI documents with oav's LiveValidator, which `make oav`
// runs. The validator is written in JavaScript (judge.mjs); this test runs its own tests.
package oav

import (
	"errors"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/node"
)

// TestValidatorFindsViolations runs the tests of the JavaScript validator. It skips if Node is not available.
func TestValidatorFindsViolations(t *testing.T) {
	nightly.Only(t)
	if err := node.Prepare(t.Context(), "."); errors.Is(err, node.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	output, err := node.Command(t.Context(), ".", "--test", "judge.test.mjs").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
