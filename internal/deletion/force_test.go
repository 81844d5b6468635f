package deletion_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

func TestKindOf(t *testing.T) {
	for name, tc := range map[string]struct{ reason, step, want string }{
		"cluster's":         {"a step of a cluster is its kind", "billing-ended", deletion.StepBillingEnded},
		"part's":            {"a step of a part has the part before it", "node-pool/np1/fleet-accepted", deletion.StepFleetAccepted},
		"Cluster Service's": {"it is named by what it removes", "hosted-cluster", ""},
		"publishing":        {"that is Cluster Service's, too", "node-pool/np1/publish", ""},
		"confusing":         {"a customer may call a node pool so", "node-pool/fleet-accepted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deletion.ARMStepKind(tc.step); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestEveryKindSaysWhyItCannotBeForced: and what can be done instead.
func TestEveryKindSaysWhyItCannotBeForced(t *testing.T) {
	for _, kind := range deletion.StepKinds() {
		if deletion.ForceRefusal(kind) == "" {
			t.Errorf("%s says nothing", kind)
		}
	}
	if text := deletion.ForceRefusal("hosted-cluster"); text != "" {
		t.Errorf("a step of Cluster Service's: %q", text)
	}
}
