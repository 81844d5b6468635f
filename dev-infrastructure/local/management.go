package local

import (
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// managementCluster is one of them: its API server and controller manager, and the clients that may use it.
type managementCluster struct {
	name  string
	index int
	pki   *kubeapi.Authority
}

func (m *managementCluster) apiServerName() string { return m.name + "-kube-apiserver" }

// kubeconfig is a client's: admin, controller-manager, maestro-agent or hypershift.
func (m *managementCluster) kubeconfig(client string) string {
	return m.pki.Path(client + ".kubeconfig")
}

// issue makes the certificates of a management cluster. All its clients are cluster administrators, as on AKS the agent
// and the HyperShift operator must be to do their work; their names tell them apart in audit logs.
func (r *Region) issue(m *managementCluster) error {
	pki, err := kubeapi.Open(r.state.path("management", m.name), m.name)
	if err != nil {
		return err
	}
	m.pki = pki
	if err := pki.IssueServing(); err != nil {
		return err
	}
	server := "https://" + r.address(management(m.index, managementAPI))
	for client, user := range map[string]string{
		kubeapi.Admin:       "hcpctl",
		kubeapi.Controllers: "system:kube-controller-manager",
		"maestro-agent":     "maestro-agent",
		"hypershift":        "hypershift",
	} {
		if err := pki.Client(client, m.name, server, user, "system:masters"); err != nil {
			return err
		}
	}
	return nil
}

// collecting is how often the Kubernetes programs collect their garbage. Without it they have nearly twice the memory for 500
// clusters, and are no faster. A region that is thrown away has few, and a quarter of the API servers' time would go into it.
func (r *Region) collecting() []string {
	if r.config.Throwaway {
		return []string{"GOGC=300"}
	}
	return []string{"GOGC=50"}
}

func (r *Region) kubeAPIServer(m *managementCluster) (supervisor.Spec, error) {
	probe, err := m.pki.TLS(kubeapi.Admin)
	if err != nil {
		return supervisor.Spec{}, err
	}
	port := r.port(management(m.index, managementAPI))
	return supervisor.Spec{
		Name:    m.apiServerName(),
		Program: r.thirdParty("bin", "kube-apiserver"),
		Args:    kubeapi.Server{PKI: m.pki, Port: port, Etcd: "http://" + r.address(etcdPort), EtcdPrefix: "/" + m.name}.APIServer(),
		Env:     r.collecting(),
		Needs:   []string{"etcd"},
		Ports:   map[string]int{"https": port},
		Ready:   httpReady("https://"+r.address(management(m.index, managementAPI))+"/readyz?verbose", probe),
	}, nil
}

func (r *Region) kubeControllerManager(m *managementCluster) (supervisor.Spec, error) {
	probe, err := m.pki.TLS(kubeapi.Admin)
	if err != nil {
		return supervisor.Spec{}, err
	}
	service := management(m.index, managementController)
	return supervisor.Spec{
		Name:    m.name + "-kube-controller-manager",
		Program: r.thirdParty("bin", "kube-controller-manager"),
		Args:    kubeapi.Server{PKI: m.pki, Port: r.port(service)}.ControllerManager(),
		Env:     r.collecting(),
		Needs:   []string{m.apiServerName()},
		Ports:   map[string]int{"https": r.port(service)},
		Ready:   httpReady("https://"+r.address(service)+"/healthz", probe),
	}, nil
}
