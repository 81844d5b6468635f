package local

import (
	"os"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestAuditKeysOfServices checks that each service that writes audit records has its own key, and that other names are refused.
func TestAuditKeysOfServices(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for _, service := range auditedServices() {
		key := must.Get(AuditKeyOf(dir, service))(t)
		if other := files[key.File]; other != "" || len(key.Processes) != 1 || key.Processes[0] != service {
			t.Errorf("%s: %+v; the file is also that of %q", service, key, other)
		}
		files[key.File] = service
	}
	for _, service := range []string{"", "arm-frontdoor", "../admin", "mgmt-1-management-audit"} {
		if key, err := AuditKeyOf(dir, service); err == nil || !strings.Contains(err.Error(), "--service") {
			t.Errorf("%q: %+v, %v", service, key, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the state folder has %v, %v", entries, err)
	}
}
