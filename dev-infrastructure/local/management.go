package local

import (
	"context"
	"crypto/tls"
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
	// pki has the files of the cluster. What it issues is of the authority at the start of the region.
	pki *kubeapi.Authority
	// egress issues the certificates of the egress proxy and of the control planes that use it.
	egress *kubeapi.EgressAuthority
}

// managementDir is the folder with the files of a management cluster's API server and of its clients.
func (r *Region) managementDir(m *managementCluster) string {
	return r.state.path("management", m.name)
}

// Names of processes.
func (m *managementCluster) apiServerName() string   { return m.name + "-kube-apiserver" }
func (m *managementCluster) controllersName() string { return m.name + "-controllers" }
func (m *managementCluster) hypershiftName() string  { return m.name + "-hypershift-runtime" }
func (m *managementCluster) agentName() string       { return m.name + "-maestro-agent" }
func (m *managementCluster) egressProxyName() string { return m.name + "-egress-proxy" }
func (m *managementCluster) insideName() string      { return m.name + "-monitor-inside" }
func (m *managementCluster) auditName() string       { return m.name + "-management-audit" }

// kubeconfig returns the kubeconfig file of a client, for example admin, maestro-agent, hypershift or monitor-inside.
func (m *managementCluster) kubeconfig(client string) string {
	return m.pki.Path(client + ".kubeconfig")
}

// engineerClient is the client of the engineer who is on call. Audit records have the engineer's name.
const engineerClient = "oncall"

// issue issues the certificates of a management cluster. All its clients but those of package managementaccess are cluster administrators,
// as the HyperShift operator has to be on AKS. Their names distinguish them in audit logs.
func (r *Region) issue(m *managementCluster) (*kubeapi.Authority, error) {
	pki, err := kubeapi.Open(r.managementDir(m), m.name)
	if err != nil {
		return nil, err
	}
	if err := pki.IssueServing(); err != nil {
		return nil, err
	}
	server := "https://" + r.address(management(m.index, managementAPI))
	for client, user := range map[string]string{
		kubeapi.Admin:       "hcpctl",
		kubeapi.Controllers: "system:kube-controller-manager",
		"hypershift":        "hypershift",
	} {
		if err := pki.Client(client, m.name, server, user, "system:masters"); err != nil {
			return nil, err
		}
	}
	if err := pki.Client(engineerClient, m.name, server, engineers[0].name, "system:masters"); err != nil {
		return nil, err
	}
	for _, limited := range managementaccess.Users() {
		if err := pki.Client(limited, m.name, server, limited); err != nil {
			return nil, err
		}
	}
	return pki, nil
}

// garbageCollection returns the GOGC setting of the Kubernetes programs. A throwaway region has few clusters, so that collecting less often than by
// Go's default costs little memory.
func (r *Region) garbageCollection() []string {
	if r.config.Throwaway {
		return []string{"GOGC=300"}
	}
	return nil
}

// probeTLS returns the current configuration of the probes of the cluster's servers.
func (m *managementCluster) probeTLS() (*tls.Config, error) { return m.pki.TLS(kubeapi.Admin) }

func (r *Region) kubeAPIServer(m *managementCluster) supervisor.Spec {
	port := r.port(management(m.index, managementAPI))
	return supervisor.Spec{
		Name:    m.apiServerName(),
		Program: r.thirdParty("bin", "kube-apiserver"),
		Args: kubeapi.Server{PKI: m.pki, Port: port, ClientCA: m.pki.Path(clientCAFile), Profiling: r.config.Profiling,
			Etcd: r.etcdURL(), EtcdPrefix: "/" + m.name, EtcdTLS: kubeapi.EtcdFiles(r.etcdAuthorityDir(), r.managementDir(m)), AuditPolicy: r.auditPolicyFile(),
			AuditLog: filepath.Join(r.auditLogDir(m.name), managementaudit.LogName), AuditMegabytes: managementaudit.MaxMegabytes, AuditBackups: managementaudit.MaxBackups}.APIServer(),
		Env:   r.garbageCollection(),
		Needs: r.process(m.apiServerName()).needs,
		Ports: r.ports(m.apiServerName()),
		Ready: httpReady("https://"+r.address(management(m.index, managementAPI))+"/readyz?verbose", m.probeTLS),
		// The other checks of /livez depend on etcd.
		Live: httpLive("https://"+r.address(management(m.index, managementAPI))+"/livez/ping", m.probeTLS),
		// It limits the clients of package managementaccess before they start.
		Settle: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
			defer cancel()
			config, err := m.probeTLS()
			if err != nil {
				return err
			}
			administrator := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			repositories, err := r.releaseRepositories()
			if err != nil {
				return err
			}
			return managementaccess.Apply(ctx, administrator, "https://"+r.address(management(m.index, managementAPI)), repositories)
		},
	}
}

func (r *Region) managementControllers(m *managementCluster) supervisor.Spec {
	service := management(m.index, managementController)
	return supervisor.Spec{
		Name:    m.controllersName(),
		Program: r.thirdParty("bin", "management-controllers"),
		Args:    kubeapi.Server{PKI: m.pki, Port: r.port(service)}.ManagementControllers(),
		Env:     r.garbageCollection(),
		Needs:   r.process(m.controllersName()).needs,
		Ports:   r.ports(m.controllersName()),
		Ready:   httpReady("https://"+r.address(service)+"/healthz", m.probeTLS),
		Live:    httpLive("https://"+r.address(service)+"/healthz", m.probeTLS),
	}
}

// monitorInside returns the prober of a management cluster, which reports the hosted API servers to monitor. Its rights are those of package
// managementaccess.
func (r *Region) monitorInside(m *managementCluster) supervisor.Spec {
	return r.ours(m.insideName(), "monitor-inside", "--kubeconfig="+m.kubeconfig(managementaccess.Prober))
}
