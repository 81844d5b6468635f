package local

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
)

// managementCluster is a management cluster: its API server, its controller manager and the clients with access.
type managementCluster struct {
	name  string
	index int
	pki   *kubeapi.Authority
	etcd  kubeapi.EtcdTLS
	// egress issues the certificates of the egress proxy and of the control planes that use it.
	egress *kubeapi.EgressAuthority
}

func (m *managementCluster) apiServerName() string { return m.name + "-kube-apiserver" }

// kubeconfig returns the kubeconfig file of a client: admin, controller-manager, maestro-agent or hypershift.
func (m *managementCluster) kubeconfig(client string) string {
	return m.pki.Path(client + ".kubeconfig")
}

// engineerClient is the client of the engineer who is on call. Audit records have the engineer's name.
const engineerClient = "oncall"

// issue issues the certificates of a management cluster. All its clients but Maestro's agent are cluster administrators, as the HyperShift
// operator has to be on AKS. Their names distinguish them in audit logs.
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
		"hypershift":        "hypershift",
		egressClient:        "egress-proxy",
	} {
		if err := pki.Client(client, m.name, server, user, "system:masters"); err != nil {
			return err
		}
	}
	if err := pki.Client(engineerClient, m.name, server, engineers[0].name, "system:masters"); err != nil {
		return err
	}
	return pki.Client("maestro-agent", m.name, server, managementaccess.Agent)
}

// garbageCollection returns the GOGC setting of the Kubernetes programs. With the default they use nearly twice the
// memory for 500 clusters, and are not faster. A throwaway region has few clusters, and frequent collection would take
// a quarter of the API servers' time.
func (r *Region) garbageCollection() []string {
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
	administrator := &http.Client{Transport: &http.Transport{TLSClientConfig: probe, DisableKeepAlives: true}}
	return supervisor.Spec{
		Name:    m.apiServerName(),
		Program: r.thirdParty("bin", "kube-apiserver"),
		Args: kubeapi.Server{PKI: m.pki, Port: port, Etcd: r.etcdURL(), EtcdPrefix: "/" + m.name, EtcdTLS: m.etcd, AuditPolicy: r.auditPolicyFile(),
			AuditLog: filepath.Join(r.auditLogDir(m.name), managementaudit.LogName), AuditMegabytes: managementaudit.MaxMegabytes, AuditBackups: managementaudit.MaxBackups}.APIServer(),
		Env:   r.garbageCollection(),
		Needs: []string{"etcd"},
		Ports: map[string]int{"https": port},
		Ready: httpReady("https://"+r.address(management(m.index, managementAPI))+"/readyz?verbose", probe),
		// The other checks of /livez depend on etcd.
		Live: httpLive("https://"+r.address(management(m.index, managementAPI))+"/livez/ping", probe),
		// It limits Maestro's agent before the agent starts.
		Settle: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
			defer cancel()
			return managementaccess.Apply(ctx, administrator, "https://"+r.address(management(m.index, managementAPI)))
		},
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
		Env:     r.garbageCollection(),
		Needs:   []string{m.apiServerName()},
		Ports:   map[string]int{"https": r.port(service)},
		Ready:   httpReady("https://"+r.address(service)+"/healthz", probe),
		Live:    httpLive("https://"+r.address(service)+"/healthz", probe),
	}, nil
}
