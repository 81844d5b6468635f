package vault

import (
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// action returns the data action of Key Vault for a request, in the permission model of Azure RBAC. A request that the emulator does
// not know has an action of its own, which only a role with a wildcard permits.
func action(r *http.Request) rbac.Action {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind, deleted := strings.CutPrefix(segments[0], "deleted")
	operation := ""
	if len(segments) == 3 {
		operation = segments[2]
	}
	verb := "unknown/action"
	switch {
	case kind != "certificates" && kind != "secrets":
	case kind == "secrets" && r.Method == http.MethodPut:
		verb = "setSecret/action"
	case kind == "secrets" && r.Method == http.MethodGet && len(segments) > 1 && operation != "versions" && !deleted:
		verb = "getSecret/action"
	case kind == "secrets" && r.Method == http.MethodGet:
		verb = "readMetadata/action"
	case r.Method == http.MethodPost && operation == "create" && !deleted:
		verb = "create/action"
	case r.Method == http.MethodPost && operation == "recover" && deleted:
		verb = "recover/action"
	case r.Method == http.MethodDelete && deleted:
		verb = "purge/action"
	case r.Method == http.MethodDelete && operation == "pending":
		verb = "update/action"
	case r.Method == http.MethodDelete:
		verb = "delete"
	case r.Method == http.MethodGet:
		verb = "read"
	}
	return rbac.Action{Name: "Microsoft.KeyVault/vaults/" + kind + "/" + verb, Data: true}
}
