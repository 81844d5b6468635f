package local

import (
	"fmt"
	"maps"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// gatewayTunnel is the workload, and the client of management clusters, that connects the session gateway to hosted API servers.
const gatewayTunnel = managementaccess.Tunnel

func tunnelName(managementCluster string) string { return managementCluster + "-" + gatewayTunnel }

// gatewayTunnels returns the agent of a management cluster's tunnels to the session gateway. It is never ready without the gateway and the issuer of its token.
func (r *Region) gatewayTunnels(m *managementCluster) []supervisor.Spec {
	if r.config.without("gateway-access") || r.config.without("arm-frontdoor") {
		return nil
	}
	spec := r.ours(tunnelName(m.name), gatewayTunnel,
		"--kubeconfig="+m.kubeconfig(gatewayTunnel),
		"--management-cluster="+m.name,
		"--gateway-url=https://"+r.address(gatewayAccessPort),
		"--audience="+adminAudience,
		"--ca-file="+r.state.path("ca", mesh.CAFile),
		"--intent-keys-file="+r.intentPublicKeyFile(),
		"--trust-domain="+r.config.TrustDomain,
	)
	return []supervisor.Spec{r.withWorkload(spec, spec.Name)}
}

// applications returns the services and agents that use Azure or the session gateway with an identity. Each management cluster has an identity of its own for
// its tunnels, so that it cannot receive the connections to the clusters of another one.
func (r *Region) applications() map[string]application {
	all := maps.Clone(workloads)
	for i, name := range r.state.record.ManagementClusters {
		all[tunnelName(name)] = application{fmt.Sprintf("2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e2f%02d", i+1), fmt.Sprintf("91d4c3a2-5b6e-4f70-8a91-0c2d4e6f9a%02d", i+1), []string{adminAudience}}
	}
	return all
}

// tunnelAgents returns the flag of the session gateway with the identities of the agents of tunnels.
func (r *Region) tunnelAgents() string {
	var pairs []string
	for _, name := range r.state.record.ManagementClusters {
		pairs = append(pairs, name+"="+r.workload(tunnelName(name)).ClientID)
	}
	return strings.Join(pairs, ",")
}
