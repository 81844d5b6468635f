package installation

import (
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Endpoints returns what hcpctl needs to use the region, as it does a region of processes.
func (e *Entra) Endpoints(proxy *Proxy) (local.Endpoints, error) {
	s := e.services
	r := s.settings()
	endpoints := local.Endpoints{
		Location: r.text("region"), ARM: e.URL(), CAFile: filepath.Join(s.Dir, "ca", mesh.CAFile), CredentialsFile: s.CustomerFile(), TenantID: CustomerTenant,
		Admin: "https://" + proxy.Admin, EngineersFile: s.EngineersFile(), AdminAudience: r.text("admin", "authentication", "audience"), Proxy: proxy.URL,
		Kubeconfigs: map[string]string{}, EngineerKubeconfigs: map[string]string{},
	}
	return endpoints, r.err
}
