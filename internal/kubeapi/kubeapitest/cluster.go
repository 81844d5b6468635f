// Package kubeapitest provides real management clusters for tests: an etcd and a kube-apiserver with the flags of a
// region, and optionally a controller manager. A test binary shares one cluster with Shared, because starting one and
// installing CustomResourceDefinitions takes longer than most tests. Start and Pool provide clusters for one test at a
// time. None of the processes outlives the test binary, even if that is killed.
package kubeapitest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

const (
	// startTimeout bounds the start of a program. It is far longer than a start needs on a busy machine.
	startTimeout = 10 * time.Minute
	// probeInterval is the interval of probes of a starting program.
	probeInterval = 20 * time.Millisecond
)

// ErrNotBuilt is returned if the programs do not exist.
var ErrNotBuilt = errors.New("kube-apiserver and etcd are not built; run tooling/third-party/build.sh")

// Cluster is a running management cluster.
type Cluster struct {
	// Programs is the folder of the Kubernetes programs.
	Programs string
	// Etcd is the URL of its etcd, which tests may use for other keys. Its clients need a certificate of the authority in the folder
	// EtcdAuthority, and a user; EtcdTLS are the files of etcdusers.Root.
	Etcd, EtcdAuthority string
	EtcdTLS             kubeapi.EtcdTLS
	// Server is the URL of its API server.
	Server string

	// AuditLogs is the folder of the API server's audit log, which it writes by the policy of package managementaudit.
	AuditLogs string

	dir      string
	pki      *kubeapi.Authority
	programs []program
}

// program is a running program with the end of its output.
type program struct {
	*spawn.Process
	name   string
	output *tail
}

// Programs returns the folder of the Kubernetes programs: KUBEBUILDER_ASSETS, or the folder of
// tooling/third-party/build.sh.
func Programs() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		built, err := nightly.ThirdParty()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(built, "bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotBuilt, err)
	}
	return dir, nil
}

// Start starts a management cluster that is stopped at the end of the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Open starts a management cluster. The caller must Close it.
func Open(ctx context.Context) (*Cluster, error) {
	programs, err := Programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hcpmesh-kubeapi-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Programs: programs, dir: dir}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("starting a management cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	pki, err := kubeapi.Open(c.dir, "test")
	if err != nil {
		return err
	}
	c.pki = pki
	if err := errors.Join(pki.IssueServing(), pki.Serving(kubeletServing, "127.0.0.1")); err != nil {
		return err
	}
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	c.AuditLogs = filepath.Join(c.dir, "audit")
	if err := errors.Join(os.Mkdir(c.AuditLogs, 0o700), os.WriteFile(policy, managementaudit.Policy, 0o600)); err != nil {
		return err
	}
	user := etcdusers.User{Prefix: "/test", Compacts: true}
	etcd, err := c.startEtcd(ctx, user)
	if err != nil {
		return err
	}
	return c.run(ctx, "kube-apiserver", func(port int) (launch, error) {
		c.Server = "https://" + address(port)
		if err := pki.Client(kubeapi.Admin, "test", c.Server, "admin", "system:masters"); err != nil {
			return launch{}, err
		}
		if err := pki.Client(kubeapi.KubeletClient, "test", c.Server, kubeletClient, "kubernetes"); err != nil {
			return launch{}, err
		}
		probe, err := pki.TLS(kubeapi.Admin)
		return launch{
			arguments: kubeapi.Server{PKI: pki, Port: port, Kubelets: true, Etcd: c.Etcd, EtcdPrefix: user.Prefix, EtcdTLS: etcd, AuditPolicy: policy,
				AuditLog: filepath.Join(c.AuditLogs, managementaudit.LogName), AuditMegabytes: managementaudit.MaxMegabytes, AuditBackups: managementaudit.MaxBackups}.APIServer(),
			// The default namespaces are created a moment after the server is ready. A controller manager exits if the
			// server is not healthy ten seconds after its start, which can happen on a busy machine.
			ready: []string{c.Server + "/api/v1/namespaces/default", c.Server + "/healthz"}, probe: probe,
		}, err
	})
}

// kubeletClient is the user with whose certificate the API server connects to kubelets, as in hosted clusters.
const kubeletClient = "system:kube-apiserver"

// kubeletServing is the name of the serving certificate of kubelets.
const kubeletServing = "kubelet-serving"

// KubeletCertificate returns a serving certificate that the API server accepts from a kubelet on 127.0.0.1. The authority of the kubeconfig
// verifies the certificate with which the API server connects.
func (c *Cluster) KubeletCertificate(t testing.TB) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.pki.Path(kubeletServing+".crt"), c.pki.Path(kubeletServing+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// startEtcd starts etcd with a user, and returns the files of the user.
func (c *Cluster) startEtcd(ctx context.Context, user etcdusers.User) (kubeapi.EtcdTLS, error) {
	c.EtcdAuthority = filepath.Join(c.dir, "etcd-ca")
	authority, err := kubeapi.CreateEtcdAuthority(c.EtcdAuthority)
	if err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	if c.EtcdTLS, err = authority.Issue(c.EtcdAuthority, etcdusers.Root); err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	config, err := c.EtcdTLS.Config()
	if err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	err = c.run(ctx, "etcd", func(port int) (launch, error) {
		c.Etcd = "https://" + address(port)
		return launch{ready: []string{c.Etcd + "/health"}, probe: config, arguments: append([]string{
			"--data-dir=" + filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + c.Etcd, "--advertise-client-urls=" + c.Etcd,
			// It has no peers, but has to listen for them: on a socket in its folder.
			"--listen-peer-urls=unix://" + filepath.Join(c.dir, "peer.sock"),
		}, authority.ServerArguments()...)}, nil
	})
	if err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	users, err := etcdusers.Open(c.Etcd, config)
	if err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	defer func() { _ = users.Close() }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := errors.Join(users.Enable(ctx), users.Ensure(ctx, user)); err != nil {
		return kubeapi.EtcdTLS{}, err
	}
	return authority.Issue(c.dir, user.Prefix)
}

// EtcdUsers returns a client of the cluster's etcd that is closed at the end of the test.
func (c *Cluster) EtcdUsers(t testing.TB) *etcdusers.Client {
	t.Helper()
	config, err := c.EtcdTLS.Config()
	if err != nil {
		t.Fatal(err)
	}
	users, err := etcdusers.Open(c.Etcd, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = users.Close() })
	return users
}

// RunControllers adds the namespace and garbage collection controllers, which run until Close.
func (c *Cluster) RunControllers(ctx context.Context) error {
	return c.runControllers(ctx, "management-controllers", kubeapi.Server.ManagementControllers)
}

// RunControllerManager adds a kube-controller-manager with the namespace and garbage collection controllers and those with the given names,
// which runs until Close.
func (c *Cluster) RunControllerManager(ctx context.Context, controllers ...string) error {
	return c.runControllers(ctx, "kube-controller-manager", func(s kubeapi.Server) []string { return s.ControllerManager(controllers...) })
}

func (c *Cluster) runControllers(ctx context.Context, program string, arguments func(kubeapi.Server) []string) error {
	if err := c.pki.Client(kubeapi.Controllers, "test", c.Server, "system:kube-controller-manager", "system:masters"); err != nil {
		return err
	}
	return c.run(ctx, program, func(port int) (launch, error) {
		probe, err := c.pki.TLS(kubeapi.Admin)
		return launch{arguments: arguments(kubeapi.Server{PKI: c.pki, Port: port}), ready: []string{"https://" + address(port) + "/healthz"}, probe: probe}, err
	})
}

// launch describes how a program is started and probed.
type launch struct {
	arguments []string
	// ready are URLs that must return 200, one after the other.
	ready []string
	probe *tls.Config
}

// run starts a program on a free port and waits until it is ready.
func (c *Cluster) run(ctx context.Context, name string, with func(port int) (launch, error)) error {
	port, err := spawn.ReservePort()
	if err != nil {
		return err
	}
	defer port.Release()
	how, err := with(port.Number)
	if err != nil {
		return err
	}
	command := exec.Command(filepath.Join(c.Programs, name), how.arguments...)
	command.Dir = c.dir
	command.Env = append(os.Environ(), "GOGC=400")
	output := new(tail)
	command.Stdout, command.Stderr = output, output
	process, err := spawn.Start(command, syscall.SIGKILL)
	if err != nil {
		return err
	}
	for _, url := range how.ready {
		if err := awaitReady(ctx, process, url, how.probe); err != nil {
			process.Kill()
			return fmt.Errorf("%s: %w: %s", name, err, output.last())
		}
	}
	c.programs = append(c.programs, program{process, name, output})
	return nil
}

var errTerminated = errors.New("terminated during its start")

// awaitReady waits until a GET of url returns 200.
func awaitReady(ctx context.Context, process *spawn.Process, url string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	var last error
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := client.Do(request); err != nil {
			last = err
		} else {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			last = errors.New(response.Status)
		}
		select {
		case <-process.Exited():
			return errTerminated
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", last)
		case <-ticker.C:
		}
	}
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.pki.Path(kubeapi.Admin + ".kubeconfig") }

// KubeconfigOf returns the path of a kubeconfig of a user in a group.
func (c *Cluster) KubeconfigOf(t testing.TB, user, group string) string {
	t.Helper()
	if err := c.pki.Client(user, "test", c.Server, user, group); err != nil {
		t.Fatal(err)
	}
	return c.pki.Path(user + ".kubeconfig")
}

// AgentKubeconfig returns the path of the kubeconfig of Maestro's agent, which has only the rights of package managementaccess.
func (c *Cluster) AgentKubeconfig(t testing.TB) string {
	return c.limitedKubeconfig(t, managementaccess.Agent)
}

// ProberKubeconfig returns the path of the kubeconfig of monitor's prober, which has only the rights of package managementaccess.
func (c *Cluster) ProberKubeconfig(t testing.TB) string {
	return c.limitedKubeconfig(t, managementaccess.Prober)
}

// TunnelKubeconfig returns the path of the kubeconfig of the agent of tunnels, which has only the rights of package managementaccess.
func (c *Cluster) TunnelKubeconfig(t testing.TB) string {
	t.Helper()
	administrator := c.limit(t, managementaccess.Tunnel)
	defer administrator.CloseIdleConnections()
	eventually.Soon(t, "the user has its role", func() error {
		status, answer, err := as(t, administrator, managementaccess.Tunnel, "", http.MethodGet, c.Server+"/apis/hypershift.openshift.io/v1beta1/hostedclusters", "")
		if err == nil && strings.HasPrefix(status, "403") {
			err = fmt.Errorf("%s: %s", status, answer)
		}
		return err
	})

	return c.pki.Path(managementaccess.Tunnel + ".kubeconfig")
}

// ForwarderKubeconfig returns the path of the kubeconfig of the log forwarder, which has only the rights of package managementaccess.
func (c *Cluster) ForwarderKubeconfig(t testing.TB) string {
	return c.limitedKubeconfig(t, managementaccess.Forwarder)
}

// EgressKubeconfig returns the path of the kubeconfig of the egress proxy, which has only the rights of package managementaccess.
func (c *Cluster) EgressKubeconfig(t testing.TB) string {
	return c.limitedKubeconfig(t, managementaccess.Egress)
}

// HostedClusters defines HostedClusters, with the names of HyperShift and without a schema.
const HostedClusters = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"hostedclusters.hypershift.openshift.io"},
	"spec":{"group":"hypershift.openshift.io","scope":"Namespaced","names":{"plural":"hostedclusters","kind":"HostedCluster"},"versions":[{"name":"v1beta1","served":true,
	"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// limitedKubeconfig limits a user and waits until the API server enforces the user's policy.
func (c *Cluster) limitedKubeconfig(t testing.TB, user string) string {
	t.Helper()
	administrator := c.limit(t, user)
	defer administrator.CloseIdleConnections()
	eventually.Soon(t, "the API server enforces the admission policy", func() error {

		status, answer, err := as(t, administrator, user, "system:masters", http.MethodPost, c.Server+"/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata":{"name":"probe"}}`)
		if err == nil && !bytes.Contains(answer, []byte("ValidatingAdmissionPolicy")) {
			err = fmt.Errorf("%s: %s", status, answer)
		}
		return err
	})

	return c.pki.Path(user + ".kubeconfig")
}

// limit issues the certificate of a user and applies the objects of package managementaccess. It returns a client of the administrator.
func (c *Cluster) limit(t testing.TB, user string) *http.Client {
	t.Helper()
	administrator, err := c.client(kubeapi.Admin)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.pki.Client(user, "test", c.Server, user); err != nil {
		t.Fatal(err)
	}
	releases, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	if err := managementaccess.Apply(t.Context(), administrator, c.Server, releases.Repositories()); err != nil {
		t.Fatal(err)
	}
	return administrator
}

// as sends a request as a user, in a group unless that is empty.
func as(t testing.TB, administrator *http.Client, user, group, method, url, body string) (status string, answer []byte, err error) {
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Impersonate-User", user)
	if group != "" {
		request.Header.Set("Impersonate-Group", group)
	}
	response, err := administrator.Do(request)
	if err != nil {
		return "", nil, err
	}
	answer, err = io.ReadAll(response.Body)
	return response.Status, answer, errors.Join(err, response.Body.Close())
}

// client returns an HTTP client with the certificate of a client of the API server.
func (c *Cluster) client(name string) (*http.Client, error) {
	config, err := c.pki.TLS(name)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: startTimeout}, nil
}

// PIDs returns the process IDs of its programs.
func (c *Cluster) PIDs() []int {
	var pids []int
	for _, program := range c.programs {
		pids = append(pids, program.PID())
	}
	return pids
}

// Report returns the state of each program and the end of its output, for the log of a failed test.
func (c *Cluster) Report() string {
	var report strings.Builder
	for _, program := range c.programs {
		state := "runs"
		select {
		case <-program.Exited():
			state = fmt.Sprintf("terminated (%v)", program.Err())
		default:
		}
		fmt.Fprintf(&report, "%s %s; end of its output:\n%s\n", program.name, state, program.output)
	}
	return report.String()
}

// Close kills the programs and removes their data.
func (c *Cluster) Close() {
	for _, program := range slices.Backward(c.programs) {
		program.Kill()
	}
	_ = os.RemoveAll(c.dir)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// tail stores the end of a program's output. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailSize is the number of stored bytes.
const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if over := len(t.text) - tailSize; over > tailSize {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(text), nil
}

// String returns the stored output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

func (t *tail) last() string {
	lines := strings.Split(t.String(), "\n")
	return lines[len(lines)-1]
}
