package database

import (
	"os"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRightsPage compares the tables of docs/deploy/cosmos-db.md with Containers and Roles.
func TestRightsPage(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/deploy/cosmos-db.md"))(t)
	var wanted []string
	for _, container := range Containers() {
		wanted = append(wanted, "| `"+container.ID+"` | `"+container.PartitionKeyDefinition.Paths[0]+"` |")
	}
	for _, role := range Roles() {
		row := "| " + role.Service + " |"
		for _, container := range []string{resourcesContainer, adminContainer, billingContainer, leasesContainer, journalContainer, sessionsContainer, accessSessionsContainer, egressLinksContainer} {
			var actions []string
			for _, grant := range role.Grants {
				if grant.Container == container {
					for _, action := range grant.DataActions {
						actions = append(actions, action[strings.LastIndexByte(action, '/')+1:])
					}
				}
			}
			row += strings.TrimRight(" "+strings.Join(actions, ", "), " ") + " |"
		}
		wanted = append(wanted, row)
	}
	for _, row := range wanted {
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/deploy/cosmos-db.md lacks the row %s", row)
		}
	}
}
