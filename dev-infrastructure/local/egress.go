package local

import (
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
)

// egressAuthorityDir returns the folder of the authority of a management cluster's egress proxy. The runtime of hosted API servers uses
// it too.
func (r *Region) egressAuthorityDir(m *managementCluster) string {
	return r.state.path("egress-ca", m.name)
}

// issueEgress issues the certificates of the egress proxies.
func (r *Region) issueEgress() error {
	for _, m := range r.clusters {
		var err error
		if m.egress, err = kubeapi.CreateEgressAuthority(r.egressAuthorityDir(m)); err != nil {
			return err
		}
	}
	return nil
}

// egressProxy returns the proxy through which the hosted API servers of a management cluster connect to token issuers. The region's own
// issuer, which is on this machine, is the only exception. The proxy reports to the management cluster when that is ready, and needs no
// other process.
func (r *Region) egressProxy(m *managementCluster) supervisor.Spec {
	return r.ours(m.egressProxyName(), "egress-proxy",
		"--listen="+r.address(management(m.index, egressPort)),
		"--tls-cert="+m.egress.CertificateFile(),
		"--tls-key="+m.egress.KeyFile(),
		"--client-ca-file="+m.egress.CAFile(),
		"--kubeconfig="+m.kubeconfig(managementaccess.Egress),
		"--allow="+r.address(frontDoorPort),
	)
}

// egressFlags returns the flags with which the runtime makes hosted API servers use the egress proxy.
func (r *Region) egressFlags(m *managementCluster) []string {
	return []string{"--egress-proxy=https://" + r.address(management(m.index, egressPort)), "--egress-authority-dir=" + r.egressAuthorityDir(m)}
}
