// Package oav holds recorded traffic against the OpenAPI documents with oav's LiveValidator; `make oav` runs it. The judge is
// JavaScript (judge.mjs); what is Go is the test that it finds what it must.
package oav

import (
	"errors"
	"testing"

	"github.com/hcpmesh/hcpmesh/test/node"
)

// TestTheJudgeBites runs the judge's own tests, where there is Node.
func TestTheJudgeBites(t *testing.T) {
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
