package server_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/api/v20260901preview"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/httpcase"
)

// TestCases runs every case of testdata/cases against the frontend.
func TestCases(t *testing.T) {
	suite := httpcase.Suite{Dir: "../../testdata"}
	cases, err := suite.Load()
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	target := httpcase.Target{BaseURL: h.url, Client: h.client, Location: location, APIVersion: v20260901preview.Version, Settle: h.settle}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if err := suite.Run(t.Context(), target, c); err != nil {
				t.Errorf("%s: %v", c.Reason, err)
			}
		})
	}
}
