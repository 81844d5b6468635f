package deletion_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

func TestARMStepKind(t *testing.T) {
	for name, tc := range map[string]struct{ reason, step, want string }{
		"cluster's":         {"the name of a cluster's step is its kind", "billing-ended", deletion.StepBillingEnded},
		"node pool's":       {"the kind follows the name of the node pool", "node-pool/np1/fleet-accepted", deletion.StepFleetAccepted},
		"Cluster Service's": {"Cluster Service names steps by what they remove", "hosted-cluster", ""},
		"publishing":        {"publishing is a step of Cluster Service", "node-pool/np1/publish", ""},
		"ambiguous":         {"a node pool may have the name of a kind", "node-pool/fleet-accepted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deletion.ARMStepKind(tc.step); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestForceRefusalOfEveryKind(t *testing.T) {
	for _, kind := range deletion.StepKinds() {
		if deletion.ForceRefusal(kind) == "" {
			t.Errorf("%s: no reason", kind)
		}
	}
	if text := deletion.ForceRefusal("hosted-cluster"); text != "" {
		t.Errorf("step of Cluster Service: refused with %q", text)
	}
}
