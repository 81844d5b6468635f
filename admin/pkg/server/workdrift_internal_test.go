package server

import (
	"strings"
	"testing"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestForeignFieldsAreListedWithTheirClient checks that a drift names the field and the client, and that a person must act.
func TestForeignFieldsAreListedWithTheirClient(t *testing.T) {
	const text = "kubectl-edit set spec.autoscaling.maxNodesTotal to 1."
	got := workDrift(&clusterservicev1.Work{Drift: "ForeignFields", ForeignFields: text, ClusterResourceId: "/demo"})
	if !strings.HasPrefix(got.Remedy, text+" A person must remove") || !strings.HasSuffix(got.Remedy, "'hcpctl explain /demo'.") || got.AutoRepaired {
		t.Errorf("%+v", got)
	}
}
