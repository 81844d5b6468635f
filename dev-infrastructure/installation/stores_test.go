package installation

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// TestServicesHaveTheirRolesInCosmosDB checks that the identity of each service that the region has a chart of has the roles of the service, and no
// others.
func TestServicesHaveTheirRolesInCosmosDB(t *testing.T) {
	root := must.Get(filepath.Abs("../.."))(t)
	target := must.Get(Target(root, "public/local/westus3", &imagelist.List{}))(t)
	content := must.Get((&settings{target: target}).cosmosAccount())(t)
	if len(content.Databases[0].Containers) != len(database.Containers()) {
		t.Errorf("the account has %d containers, want %d", len(content.Databases[0].Containers), len(database.Containers()))
	}
	owners := map[string]string{}
	for _, assignment := range content.RoleAssignments {
		service, _, _ := strings.Cut(assignment.RoleDefinitionID, "/")
		if assignment.PrincipalID == "" {
			t.Errorf("%s has no identity", service)
		}
		if other := owners[assignment.PrincipalID]; other != "" && other != service {
			t.Errorf("%s and %s have the same identity", service, other)
		}
		owners[assignment.PrincipalID] = service
	}
	installed := 0
	for _, role := range database.Roles() {
		if w, ok := workload.Find(mesh.Peer(role.Service)); ok && values.Applies(w, target) {
			installed++
		}
	}
	if len(owners) != installed || installed == 0 {
		t.Errorf("%d identities have roles, want those of %d services", len(owners), installed)
	}
}
