// Package kubeapi says how the Kubernetes programs of a management cluster are started on one machine: the flags of its
// kube-apiserver and kube-controller-manager, and the certificates of all its servers and clients. The local region runs
// them under its supervisor, tests with package kubeapitest, with the same flags. It speaks no Kubernetes API.
package kubeapi

import (
	"strconv"
	"strings"
)

// Names of what an Authority of a management cluster issues, and of the hosts that its API server is known as.
const (
	// Serving is the certificate of the API server and of the controller manager.
	Serving = "serving"
	// Admin is the client that may do everything.
	Admin = "admin"
	// Controllers is the controller manager's client.
	Controllers = "controller-manager"
)

// hosts are what the API server is known as.
var hosts = []string{"127.0.0.1", "localhost", "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}

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

// Server is an API server, or a controller manager, that is to be started on loopback with the certificates of PKI.
type Server struct {
	PKI  *Authority
	Port int
	// Etcd is the URL of etcd, and EtcdPrefix what all keys begin with, as /mgmt-1. Only an API server has them.
	Etcd, EtcdPrefix string
}

// IssueServing issues the serving certificate of the cluster's servers.
func (a *Authority) IssueServing() error { return a.Serving(Serving, hosts...) }

// APIServer are the arguments of kube-apiserver.
func (s Server) APIServer() []string {
	return []string{
		"--etcd-servers=" + s.Etcd,
		"--etcd-prefix=" + s.EtcdPrefix,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.Port),
		"--tls-cert-file=" + s.PKI.Path(Serving+".crt"), "--tls-private-key-file=" + s.PKI.Path(Serving+".key"),
		"--client-ca-file=" + s.PKI.Path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.PKI.Path("sa.key"),
		"--service-account-signing-key-file=" + s.PKI.Path("sa.key"),
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
	}
}

// ControllerManager are the arguments of kube-controller-manager with the controllers for namespaces and owners, without
// which nothing is ever gone.
func (s Server) ControllerManager() []string {
	kubeconfig := s.PKI.Path(Controllers + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.Port),
		"--tls-cert-file=" + s.PKI.Path(Serving+".crt"), "--tls-private-key-file=" + s.PKI.Path(Serving+".key"),
		"--service-account-private-key-file=" + s.PKI.Path("sa.key"),
		"--leader-elect=false",
		"--controllers=namespace-controller,garbage-collector-controller",
		"--kube-api-qps=200", "--kube-api-burst=400",
		// Emptying a namespace is two requests for each kind of object, one after the other, and much of it is waiting. With many
		// more at a time all of them would be slow where the cores are busy.
		"--concurrent-namespace-syncs=20",
		"--profiling=false",
	}
}
