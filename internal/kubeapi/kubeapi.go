// Package kubeapi defines how the Kubernetes programs of a management cluster are started on one machine: the flags of
// its kube-apiserver and its controllers, and the certificates of all its servers and clients. The local region
// runs the programs under its supervisor and tests with package kubeapitest, both with these flags. Of the API of
// Kubernetes, the package only reads whether a server is ready.
package kubeapi

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Names of the certificates that an Authority of a management cluster issues.
const (
	// Serving is the serving certificate of the API server and of the controller manager.
	Serving = "serving"
	// Admin is the client certificate of the cluster administrator.
	Admin = "admin"
	// Controllers is the client certificate of the controller manager.
	Controllers = "controller-manager"
	// KubeletClient is the client certificate of the API server for kubelets.
	KubeletClient = "kubelet-client"
)

// hosts are the DNS names and IP addresses of the API server.
var hosts = []string{"127.0.0.1", "localhost", "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}

// apiGroups are the API groups of Kubernetes that each management cluster serves: those that the manifests of hosted
// control planes and the agents use. Without the others the server needs less memory and starts faster.
var apiGroups = []string{
	"api/all=false",
	"v1=true",
	"admissionregistration.k8s.io/v1=true",
	"apiextensions.k8s.io/v1=true",
	"apiregistration.k8s.io/v1=true",
	"authentication.k8s.io/v1=true",
	"authorization.k8s.io/v1=true",
	"certificates.k8s.io/v1=true",
	"coordination.k8s.io/v1=true",
	"discovery.k8s.io/v1=true",
	"networking.k8s.io/v1=true",
	"node.k8s.io/v1=true",
	"rbac.authorization.k8s.io/v1=true",
	"scheduling.k8s.io/v1=true",
	"storage.k8s.io/v1=true",
}

// workloadGroups are API groups of which only a cluster with nodes has objects. Others do not serve them, because the namespace controller sends
// two requests for each kind when it empties a namespace.
var workloadGroups = []string{"apps/v1=true", "batch/v1=true", "events.k8s.io/v1=true", "policy/v1=true"}

// withoutWorkloads are the kinds of apiGroups that only a cluster with nodes serves, for the same reason. The server would take api/v1/endpoints for api/v1.
var withoutWorkloads = []string{
	"/v1/endpoints=false",
	"/v1/limitranges=false",
	"/v1/persistentvolumeclaims=false",
	"/v1/podtemplates=false",
	"/v1/replicationcontrollers=false",
	"/v1/resourcequotas=false",
	"networking.k8s.io/v1/ingresses=false",
	"storage.k8s.io/v1/csistoragecapacities=false",
}

// Server is the configuration of an API server or a controller manager that listens on loopback with the certificates
// of PKI.
type Server struct {
	PKI  *Authority
	Port int
	// ClientCA is the file with the authorities whose client certificates an API server accepts; empty for ca.crt of PKI. The server follows
	// its changes.
	ClientCA string
	// Etcd is the URL of etcd, EtcdPrefix the prefix of all keys, for example /mgmt-1, and EtcdTLS the files for the
	// connection. Only an API server uses them.
	Etcd, EtcdPrefix string
	EtcdTLS          EtcdTLS
	// AuditPolicy is the file of the audit policy, and AuditLog the file of the audit log; empty for no audit. AuditMegabytes is the
	// size at which the API server starts another file, AuditBackups the number of older files that it keeps.
	AuditPolicy, AuditLog        string
	AuditMegabytes, AuditBackups int
	// Kubelets makes an API server connect to the kubelets of its nodes, at their external addresses: with KubeletClient, and it verifies them
	// with ca.crt of PKI. Only such a server serves workloadGroups, and the kinds of withoutWorkloads.
	Kubelets bool
	// Profiling makes an API server serve profiles below /debug/pprof/ to the clients that may read this path. Profiles show the memory of the
	// server, so it is only for benchmarks.
	Profiling bool
}

// IssueServing issues the serving certificate of the cluster's servers.
func (a *Authority) IssueServing() error { return a.Serving(Serving, hosts...) }

// APIServer returns the arguments of kube-apiserver.
func (s Server) APIServer() []string {
	return slices.Concat([]string{
		"--etcd-servers=" + s.Etcd,
		"--etcd-prefix=" + s.EtcdPrefix,
		"--encryption-provider-config=" + s.PKI.Path(EncryptionFile), "--encryption-provider-config-automatic-reload",
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.Port),
		"--tls-cert-file=" + s.PKI.Path(Serving+".crt"), "--tls-private-key-file=" + s.PKI.Path(Serving+".key"),
		"--client-ca-file=" + cmp.Or(s.ClientCA, s.PKI.Path("ca.crt")),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.PKI.Path("sa.key"),
		"--service-account-signing-key-file=" + s.PKI.Path("sa.key"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=" + strings.Join(s.disabledAdmission(), ","),
		"--endpoint-reconciler-type=none",
		// All its clients are our programs, which limit themselves; the plain limits of requests in flight are enough.
		"--enable-priority-and-fairness=false",
		"--profiling=" + strconv.FormatBool(s.Profiling),
		"--event-ttl=30m",
		"--runtime-config=" + strings.Join(s.apiGroups(), ","),
	}, s.EtcdTLS.Arguments(), s.audit(), s.kubelets())
}

func (s Server) apiGroups() []string {
	if !s.Kubelets {
		return slices.Concat(apiGroups, withoutWorkloads)
	}
	return slices.Concat(apiGroups, workloadGroups)
}

// disabledAdmission returns the admission plugins that do not run. No controller creates tokens of service accounts, and no pod uses them. Plugins
// that need kinds of withoutWorkloads run with these.
func (s Server) disabledAdmission() []string {
	if !s.Kubelets {
		return []string{"ServiceAccount", "LimitRanger", "ResourceQuota"}
	}
	return []string{"ServiceAccount"}
}

// kubelets returns the arguments for connections to kubelets.
func (s Server) kubelets() []string {
	if !s.Kubelets {
		return nil
	}
	return []string{
		"--kubelet-client-certificate=" + s.PKI.Path(KubeletClient+".crt"), "--kubelet-client-key=" + s.PKI.Path(KubeletClient+".key"),
		"--kubelet-certificate-authority=" + s.PKI.Path("ca.crt"), "--kubelet-preferred-address-types=ExternalIP",
	}
}

// audit returns the arguments for the audit log. An event is written before the response of its request ends.
func (s Server) audit() []string {
	if s.AuditPolicy == "" {
		return nil
	}
	return []string{
		"--audit-policy-file=" + s.AuditPolicy, "--audit-log-path=" + s.AuditLog,
		"--audit-log-maxsize=" + strconv.Itoa(s.AuditMegabytes), "--audit-log-maxbackup=" + strconv.Itoa(s.AuditBackups),
	}
}

// ManagementControllers returns the arguments of management-controllers, the namespace and garbage collection controllers, without which the
// deletion of namespaces and dependents would never finish.
func (s Server) ManagementControllers() []string {
	kubeconfig := s.PKI.Path(Controllers + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.Port),
		"--tls-cert-file=" + s.PKI.Path(Serving+".crt"), "--tls-private-key-file=" + s.PKI.Path(Serving+".key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
		// Emptying a namespace takes two sequential requests for each kind of object, most of which is waiting. A much
		// larger number of concurrent workers would slow down all of them on busy cores.
		"--concurrent-namespace-syncs=20",
	}
}

// ControllerManager returns the arguments of kube-controller-manager with the controllers of management-controllers and those with the
// given names.
func (s Server) ControllerManager(controllers ...string) []string {
	enabled := slices.Concat([]string{"namespace-controller", "garbage-collector-controller"}, controllers)
	return append(s.ManagementControllers(),
		"--service-account-private-key-file="+s.PKI.Path("sa.key"), "--leader-elect=false", "--profiling=false",
		"--controllers="+strings.Join(enabled, ","))
}
