package hostedapi

import (
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// egressName is the file with the egress selection.
const egressName = "egress.json"

// Egress is the proxy through which hosted API servers connect to token issuers.
type Egress struct {
	// URL is the https URL of the proxy.
	URL string
	// AuthorityDir is the folder of the authority that issues the certificates of control planes for the proxy.
	AuthorityDir string
}

// egressArguments issues the certificate of a server for the proxy, writes its egress selection, and returns the arguments that select
// the proxy; none without a proxy. The server reads the files when it starts.
func (s *server) egressArguments() ([]string, error) {
	proxy := s.supervisor.options.Egress
	if proxy == nil {
		return nil, nil
	}
	authority, err := kubeapi.OpenEgressAuthority(proxy.AuthorityDir)
	if err != nil {
		return nil, err
	}
	files, err := authority.Issue(s.dir, s.name)
	if err != nil {
		return nil, err
	}
	selection, err := files.Selection(proxy.URL)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, egressName)
	return []string{"--egress-selector-config-file=" + file}, writeFile(file, selection)
}
