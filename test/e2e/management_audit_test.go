package e2e

import (
	"errors"
	"os/exec"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestEngineerOnManagementClusterIsAudited: what the engineer on call does with kubectl is in the audit, with the engineer's name.
func TestEngineerOnManagementClusterIsAudited(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	endpoints := region.Endpoints()
	for name, kubeconfig := range endpoints.EngineerKubeconfigs {
		command := exec.CommandContext(t.Context(), endpoints.Kubectl, "--kubeconfig", kubeconfig, "--cache-dir", t.TempDir(), "get", "secrets", "--all-namespaces")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		awaitAudit(t, "the engineer's request is in the audit", func(records map[string][]audit.Record) error {
			if !slices.ContainsFunc(records[managementaudit.Service], func(r audit.Record) bool {
				return r.Person.Name == "oncall@hcpmesh.local" && r.Action == "kubernetes.list" && r.Object.Kind == "secrets" && r.Object.ID == name && r.Outcome == audit.Succeeded
			}) {
				return errors.New("the request has no record")
			}
			return nil
		})
	}
	if len(endpoints.EngineerKubeconfigs) == 0 {
		t.Error("the region has no kubeconfigs of engineers")
	}
}
