// Package kubeapitest gives tests a real management cluster: an etcd and a kube-apiserver with the flags that a region
// gives it, and a controller manager for those who ask. A test binary shares one with Shared, for starting one and
// teaching it CustomResourceDefinitions costs more than most tests; who needs one of their own calls Start. None of the
// processes outlives the test binary, however that ends.
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

	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

const (
	// startWithin bounds how long a program may take to answer, on a machine that is busy with other things.
	startWithin = time.Minute
	// askEvery is how often one that starts is asked.
	askEvery = 20 * time.Millisecond
	// attempts is how often a program is started when it ends at once: somebody took the port in between.
	attempts = 3
)

// ErrNotBuilt is returned when the programs are not there.
var ErrNotBuilt = errors.New("kube-apiserver and etcd are not built; run tooling/third-party/build.sh")

// Cluster is a running management cluster.
type Cluster struct {
	// Programs is the folder of the Kubernetes programs.
	Programs string
	// Etcd is the URL of its etcd, which a test may share for other keys.
	Etcd string
	// Server is the URL of its API server.
	Server string

	dir      string
	pki      *kubeapi.Authority
	programs []program
}

// program is one that runs, and what it says.
type program struct {
	*spawn.Process
	name   string
	output *tail
}

// Programs finds the folder of the Kubernetes programs: KUBEBUILDER_ASSETS, or what tooling/third-party/build.sh has built.
func Programs() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		root, err := root()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, ".build", "third-party", "bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotBuilt, err)
	}
	return dir, nil
}

// root is the repository's root folder, above the test's.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.work above the test")
		}
	}
}

// Start starts a management cluster for the rest of a test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Open starts a management cluster, which the caller closes.
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
	if err := pki.IssueServing(); err != nil {
		return err
	}
	err = c.run(ctx, "etcd", func(port int) (launch, error) {
		c.Etcd = "http://" + address(port)
		return launch{ready: []string{c.Etcd + "/health"}, arguments: []string{
			"--data-dir=" + filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
			"--listen-client-urls=" + c.Etcd, "--advertise-client-urls=" + c.Etcd,
			// It has no peers, but must listen for some: on a socket of its folder.
			"--listen-peer-urls=unix://" + filepath.Join(c.dir, "peer.sock"),
		}}, nil
	})
	if err != nil {
		return err
	}
	return c.run(ctx, "kube-apiserver", func(port int) (launch, error) {
		c.Server = "https://" + address(port)
		if err := pki.Client(kubeapi.Admin, "test", c.Server, "admin", "system:masters"); err != nil {
			return launch{}, err
		}
		probe, err := pki.TLS(kubeapi.Admin)
		return launch{
			arguments: kubeapi.Server{PKI: pki, Port: port, Etcd: c.Etcd, EtcdPrefix: "/test"}.APIServer(),
			// The namespaces that every cluster has come a moment after it is ready; and a controller manager ends for good when a
			// server is not healthy ten seconds after it began, which a busy machine's may not be.
			ready: []string{c.Server + "/api/v1/namespaces/default", c.Server + "/healthz"}, probe: probe,
		}, err
	})
}

// RunControllerManager adds a controller manager for namespaces and owners, for the rest of the cluster's life.
func (c *Cluster) RunControllerManager(ctx context.Context) error {
	if err := c.pki.Client(kubeapi.Controllers, "test", c.Server, "system:kube-controller-manager", "system:masters"); err != nil {
		return err
	}
	return c.run(ctx, "kube-controller-manager", func(port int) (launch, error) {
		probe, err := c.pki.TLS(kubeapi.Admin)
		return launch{arguments: kubeapi.Server{PKI: c.pki, Port: port}.ControllerManager(), ready: []string{"https://" + address(port) + "/healthz"}, probe: probe}, err
	})
}

// launch says how a program is started, and where and how it is asked whether it is ready.
type launch struct {
	arguments []string
	// ready are URLs that answer 200 one after the other.
	ready []string
	probe *tls.Config
}

// run starts a program on a free port and waits until it answers.
func (c *Cluster) run(ctx context.Context, name string, with func(port int) (launch, error)) error {
	var err error
	for range attempts {
		var port int
		if port, err = freePort(); err != nil {
			return err
		}
		var how launch
		if how, err = with(port); err != nil {
			return err
		}
		command := exec.Command(filepath.Join(c.Programs, name), how.arguments...)
		command.Dir = c.dir
		command.Env = append(os.Environ(), "GOGC=200")
		output := new(tail)
		command.Stdout, command.Stderr = output, output
		var process *spawn.Process
		if process, err = spawn.Start(command, syscall.SIGKILL); err != nil {
			return err
		}
		for _, url := range how.ready {
			if err = answers(ctx, process, url, how.probe); err != nil {
				break
			}
		}
		if err == nil {
			c.programs = append(c.programs, program{process, name, output})
			return nil
		}
		process.Kill()
		err = fmt.Errorf("%s: %w: %s", name, err, output.last())
		if !errors.Is(err, errEnded) {
			return err
		}
	}
	return err
}

var errEnded = errors.New("it ended while it was starting")

// answers waits until a program answers 200.
func answers(ctx context.Context, process *spawn.Process, url string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ticker := time.NewTicker(askEvery)
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
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w", last)
		case <-ticker.C:
		}
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.pki.Path(kubeapi.Admin + ".kubeconfig") }

// PIDs are the process ids of its programs.
func (c *Cluster) PIDs() []int {
	var pids []int
	for _, program := range c.programs {
		pids = append(pids, program.PID())
	}
	return pids
}

// Report says which programs have ended, and what each said last: for a test that has failed.
func (c *Cluster) Report() string {
	var report strings.Builder
	for _, program := range c.programs {
		state := "runs"
		select {
		case <-program.Exited():
			state = fmt.Sprintf("ended (%v)", program.Err())
		default:
		}
		fmt.Fprintf(&report, "%s %s, and said last:\n%s\n", program.name, state, program.output)
	}
	return report.String()
}

// Close ends the programs, of which nothing is kept.
func (c *Cluster) Close() {
	for _, program := range slices.Backward(c.programs) {
		program.Kill()
	}
	_ = os.RemoveAll(c.dir)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// tail keeps the end of what a program says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// tailSize is how much of it.
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

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

func (t *tail) last() string {
	lines := strings.Split(t.String(), "\n")
	return lines[len(lines)-1]
}
