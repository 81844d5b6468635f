package local

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/clusterpki"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
)

// apiGroups are the API groups of Kubernetes that a management cluster serves: what the manifests of hosted control
// planes and the agents use. Leaving out the rest saves memory and a part of the start.
var apiGroups = []string{
	"api/all=false",
	"v1=true",
	"admissionregistration.k8s.io/v1=true",
	"apiextensions.k8s.io/v1=true",
	"apiregistration.k8s.io/v1=true",
	"apps/v1=true",
	"authentication.k8s.io/v1=true",
	"authorization.k8s.io/v1=true",
	"batch/v1=true",
	"certificates.k8s.io/v1=true",
	"coordination.k8s.io/v1=true",
	"discovery.k8s.io/v1=true",
	"events.k8s.io/v1=true",
	"networking.k8s.io/v1=true",
	"node.k8s.io/v1=true",
	"policy/v1=true",
	"rbac.authorization.k8s.io/v1=true",
	"scheduling.k8s.io/v1=true",
	"storage.k8s.io/v1=true",
}

// managementCluster is one of them: its API server and controller manager, and the clients that may use it.
type managementCluster struct {
	name  string
	index int
	pki   *clusterpki.Authority
}

func (m *managementCluster) apiServerName() string { return m.name + "-kube-apiserver" }

// kubeconfig is a client's: admin, controller-manager, maestro-agent or hypershift.
func (m *managementCluster) kubeconfig(client string) string {
	return m.pki.Path(client + ".kubeconfig")
}

// issue makes the certificates of a management cluster. All its clients are cluster administrators, as on AKS the agent
// and the HyperShift operator must be to do their work; their names tell them apart in audit logs.
func (r *Region) issue(m *managementCluster) error {
	pki, err := clusterpki.Open(r.state.path("management", m.name), m.name)
	if err != nil {
		return err
	}
	m.pki = pki
	hosts := []string{"127.0.0.1", "localhost", "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if err := pki.Serving("serving", hosts...); err != nil {
		return err
	}
	server := "https://" + r.address(management(m.index, managementAPI))
	for client, user := range map[string]string{
		"admin":              "hcpctl",
		"controller-manager": "system:kube-controller-manager",
		"maestro-agent":      "maestro-agent",
		"hypershift":         "hypershift",
	} {
		if err := pki.Client(client, m.name, server, user, "system:masters"); err != nil {
			return err
		}
	}
	return nil
}

func (r *Region) kubeAPIServer(m *managementCluster) (supervisor.Spec, error) {
	probe, err := m.adminTLS()
	if err != nil {
		return supervisor.Spec{}, err
	}
	port := r.port(management(m.index, managementAPI))
	return supervisor.Spec{
		Name:    m.apiServerName(),
		Program: r.thirdParty("bin", "kube-apiserver"),
		Args: []string{
			"--etcd-servers=http://" + r.address(etcdPort),
			"--etcd-prefix=/" + m.name,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + itoa(port),
			"--tls-cert-file=" + m.pki.Path("serving.crt"), "--tls-private-key-file=" + m.pki.Path("serving.key"),
			"--client-ca-file=" + m.pki.Path("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + m.pki.Path("sa.key"),
			"--service-account-signing-key-file=" + m.pki.Path("sa.key"),
			"--authorization-mode=RBAC",
			"--service-cluster-ip-range=10.0.0.0/24",
			// There is no controller that makes service accounts' tokens and no pod to give them to.
			"--disable-admission-plugins=ServiceAccount",
			"--endpoint-reconciler-type=none",
			// Its clients are ours and bounded by themselves; the plain in-flight limits are enough.
			"--enable-priority-and-fairness=false",
			"--profiling=false",
			"--event-ttl=30m",
			"--runtime-config=" + strings.Join(apiGroups, ","),
		},
		Env:   []string{"GOGC=50"}, // without it nearly twice the memory for 500 clusters, and no faster
		Needs: []string{"etcd"},
		Ports: map[string]int{"https": port},
		Ready: httpReady("https://"+r.address(management(m.index, managementAPI))+"/readyz?verbose", probe),
	}, nil
}

func (r *Region) kubeControllerManager(m *managementCluster) (supervisor.Spec, error) {
	probe, err := m.adminTLS()
	if err != nil {
		return supervisor.Spec{}, err
	}
	service := management(m.index, managementController)
	return supervisor.Spec{
		Name:    m.name + "-kube-controller-manager",
		Program: r.thirdParty("bin", "kube-controller-manager"),
		Args: []string{
			"--kubeconfig=" + m.kubeconfig("controller-manager"),
			"--authentication-kubeconfig=" + m.kubeconfig("controller-manager"),
			"--authorization-kubeconfig=" + m.kubeconfig("controller-manager"),
			"--bind-address=127.0.0.1", "--secure-port=" + itoa(r.port(service)),
			"--tls-cert-file=" + m.pki.Path("serving.crt"), "--tls-private-key-file=" + m.pki.Path("serving.key"),
			"--service-account-private-key-file=" + m.pki.Path("sa.key"),
			"--leader-elect=false",
			"--controllers=namespace-controller,garbage-collector-controller",
			"--kube-api-qps=200", "--kube-api-burst=400",
			"--profiling=false",
		},
		Env:   []string{"GOGC=50"},
		Needs: []string{m.apiServerName()},
		Ports: map[string]int{"https": r.port(service)},
		Ready: httpReady("https://"+r.address(service)+"/healthz", probe),
	}, nil
}

// adminTLS is how the region itself asks the management cluster's servers.
func (m *managementCluster) adminTLS() (*tls.Config, error) {
	authority, err := os.ReadFile(m.pki.Path("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the management cluster's authority is not PEM")
	}
	certificate, err := tls.LoadX509KeyPair(m.pki.Path("admin.crt"), m.pki.Path("admin.key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}
