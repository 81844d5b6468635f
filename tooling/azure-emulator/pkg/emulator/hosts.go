package emulator

import (
	"net"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
)

// addressed returns the service of a request, and the request with the path that the service has below the root of the emulator. A name of
// Azure selects the service and its account or vault: ACCOUNT.blob.core.windows.net, VAULT.vault.azure.net, management.azure.com. Under all
// other names and addresses, the path selects the service. known is false for the name of an account or vault that the emulator does not have.
func (e *Emulator) addressed(r *http.Request) (service string, found *http.Request, known bool) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	if account, ok := strings.CutSuffix(host, arm.BlobSuffix); ok {
		if !e.blob.Serves("/" + account) {
			return ServiceBlob, r, false
		}
		found = r.Clone(r.Context())
		found.URL.Path = "/" + account + r.URL.Path
		if r.URL.RawPath != "" {
			found.URL.RawPath = "/" + account + r.URL.RawPath
		}
		return ServiceBlob, found, true
	}
	if name, ok := strings.CutSuffix(host, arm.VaultSuffix); ok {
		vault := e.options.Seed.Vault
		return ServiceVault, r, vault != "" && strings.EqualFold(name, path.Base(vault))
	}
	if host == arm.Host {
		return ServiceARM, r, true
	}
	if unknownAccount.MatchString(r.URL.Path) && e.service(r.URL.Path) == ServiceARM {
		return ServiceBlob, r, false
	}
	return e.service(r.URL.Path), r, true
}

// unknownAccount matches the paths of the containers into which Azure Monitor writes logs. Resource Manager has no such paths, so a request
// for an account that was deleted gets the response of Blob Storage.
var unknownAccount = regexp.MustCompile(`^/[a-z0-9]{3,24}/insights-logs-`)
