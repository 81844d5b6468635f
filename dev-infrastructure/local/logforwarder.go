package local

import (
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// logForwarder is the workload, and the client of management clusters, that delivers customers' logs.
const logForwarder = managementaccess.Forwarder

func (m *managementCluster) logForwarderName() string { return m.name + "-" + logForwarder }

// logForwarders returns the processes that deliver the logs of a management cluster's hosted clusters. A region without Azure has no customers'
// storage accounts.
func (r *Region) logForwarders(m *managementCluster) []supervisor.Spec {
	if !r.hasAzure() {
		return nil
	}
	spec := r.ours(m.logForwarderName(), logForwarder,
		"--kubeconfig="+m.kubeconfig(logForwarder),
		"--hosted-dir="+r.state.path("hosted", m.name),
		"--state-dir="+r.state.path("log-forwarder", m.name),
		"--location="+r.config.Location,
		"--resource-manager=https://"+r.address(azurePort),
		"--blob-url=https://"+r.address(azurePort)+"/{account}",
		"--ca-file="+r.state.path("ca", mesh.CAFile),
		"--settings-age=15s",
		"--flush-interval=1s",
		"--report-after=15s",
	)
	return []supervisor.Spec{r.withWorkload(spec, logForwarder)}
}
