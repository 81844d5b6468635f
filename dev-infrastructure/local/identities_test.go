package local

import "testing"

// TestEachPrincipalHasItsObjectID checks that no two principals have the same object ID: services authorize callers by it.
func TestEachPrincipalHasItsObjectID(t *testing.T) {
	seen := map[string]string{}
	check := func(name, objectID string) {
		if other := seen[objectID]; other != "" {
			t.Errorf("%s and %s have the object ID %s", other, name, objectID)
		}
		seen[objectID] = name
	}
	for name, workload := range workloads {
		check(name, workload.objectID)
	}
	for _, engineer := range engineers {
		check(engineer.name, engineer.objectID)
	}
	check("hcpctl", hcpctlObjectID)
	check("the SRE portal", portalObjectID)
	check("the customer", customerObjectID)
	check("Cluster Service", serviceObjectID)
}
