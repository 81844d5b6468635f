package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// argumentsVariable holds the arguments of hcpctl in JSON for a process of the test that is hcpctl, and folderVariable the folder with the files
// of the simulated admin.
const (
	argumentsVariable = "HCPCTL_TEST_ARGUMENTS"
	folderVariable    = "HCPCTL_TEST_FOLDER"
)

func TestMain(m *testing.M) {
	text := os.Getenv(argumentsVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var arguments []string
	if err := json.Unmarshal([]byte(text), &arguments); err != nil {
		panic(err)
	}
	command := NewFor(os.Stdout, os.Stderr, func(options adminclient.Options) (*adminclient.Client, error) {
		folder := os.Getenv(folderVariable)
		options.Authority, options.CAFile = options.Endpoint, filepath.Join(folder, "ca.crt")
		options.CredentialsFile, options.Audience = filepath.Join(folder, "engineers.json"), "api://admin"
		return adminclient.New(options)
	})
	command.SetArgs(arguments)
	err := command.Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(ExitCode(err))
}

// proxy is an HTTP proxy that connects to one server, whatever its clients request.
type proxy struct {
	*httptest.Server
	server string

	mu sync.Mutex
	// hosts are the hosts that clients requested.
	hosts []string
}

func newProxy(t *testing.T, server net.Addr) *proxy {
	t.Helper()
	p := &proxy{server: server.String()}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.hosts = append(p.hosts, r.Host)
	p.mu.Unlock()
	if r.Method != http.MethodConnect {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(server, buffered); _ = server.Close() })
	_, _ = io.Copy(client, server)
	_ = client.Close()
	copies.Wait()
}

// TestProxyCountsForEveryCommand runs a command of each kind with a proxy that alone can reach the server.
func TestProxyCountsForEveryCommand(t *testing.T) {
	arm, admin := newAzure(t), newSREs(t)
	admin.shown["/me"] = map[string]any{"name": "ada"}
	for name, tc := range map[string]struct {
		server *httptest.Server
		folder string
		args   []string
		host   string
		// code is the exit code; -1 if the server is not one that the command can use.
		code int
	}{
		"ARM": {arm.Server, arm.dir, []string{"cluster", "list", "--endpoint", "https://example.com", "--ca-file", filepath.Join(arm.dir, "ca.crt"),
			"--credentials-file", filepath.Join(arm.dir, "credentials.json")}, "example.com:443", 0},
		"admin":       {admin.Server, admin.dir, []string{"whoami", "--admin-endpoint", "https://example.com"}, "example.com:443", 0},
		"issuer":      {admin.Server, admin.dir, []string{"login", "--device", "--issuer", "https://example.com/t", "--client-id", "c", "--admin-audience", "a"}, "example.com:443", -1},
		"trace store": {arm.Server, arm.dir, []string{"trace", "o", "--store", "http://store.example"}, "store.example", exitNotFound},
		"Prometheus":  {arm.Server, arm.dir, []string{"dashboard", "show", "region", "--prometheus", "http://prometheus.example"}, "prometheus.example", -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, tc.server.Listener.Addr())
			arguments, err := json.Marshal(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			process := exec.CommandContext(t.Context(), os.Args[0])
			process.Env = []string{argumentsVariable + "=" + string(arguments), folderVariable + "=" + tc.folder, "HTTPS_PROXY=" + p.URL, "HTTP_PROXY=" + p.URL, "HOME=" + t.TempDir()}
			var output bytes.Buffer
			process.Stdout, process.Stderr = &output, &output
			err = process.Run()
			p.mu.Lock()
			defer p.mu.Unlock()
			if !slices.Contains(p.hosts, tc.host) {
				t.Errorf("the proxy was asked for %v, want %s; %v: %s", p.hosts, tc.host, err, output.String())
			}
			if code := process.ProcessState.ExitCode(); tc.code >= 0 && code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, strings.TrimSpace(output.String()))
			}
		})
	}
}
