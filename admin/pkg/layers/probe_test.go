package layers

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/closedport"
)

// listen serves one connection after another with serve until the test ends, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serve(connection)
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	return listener.Addr().String()
}

// hung returns the address of a listener that accepts connections and never responds, like a process that SIGSTOP stopped.
func hung(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel completes connections without Accept
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// service returns the URL of a server with a fixed response of /readyz. If it waits, /readyz responds when the client gives up.
func service(t *testing.T, status int, body string, waits bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			return
		}
		if waits {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestQuestionsDistinguishFaults(t *testing.T) {
	postgres := func(answer string) string {
		return listen(t, func(c net.Conn) {
			defer func() { _ = c.Close() }()
			if _, err := io.ReadFull(c, make([]byte, len(sslRequest))); err == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
	}
	encrypted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(encrypted.Close)
	postgresWithTLS := listen(t, func(c net.Conn) {
		defer func() { _ = c.Close() }()
		if _, err := io.ReadFull(c, make([]byte, len(sslRequest))); err != nil {
			return
		}
		_, _ = io.WriteString(c, "S")
		_ = tls.Server(c, encrypted.TLS).HandshakeContext(t.Context())
	})
	postgresResets := listen(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(sslRequest))); err == nil {
			_, _ = io.WriteString(c, "S")
			_, _ = c.Read(make([]byte, 1)) // the client has read the response
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
	of := func(base string) Target { return Target{Ready: base + "/readyz", Alive: base + "/healthz"} }
	const slow = "slow readiness check"
	tests := map[string]struct {
		target  Target
		state   adminv1.ComponentState
		message string
	}{
		"ready":                 {of(service(t, 200, "", false)), adminv1.ComponentReady, ""},
		"dependency not ready":  {of(service(t, 503, `{"ready":false,"notReady":{"postgresql":"connection refused by peer"}}`, false)), adminv1.ComponentNotReady, "postgresql"},
		"Kubernetes' checks":    {of(service(t, 500, "[+]ping ok\n[-]etcd failed: reason withheld\n", false)), adminv1.ComponentNotReady, "etcd failed"},
		"disk full":             {of(service(t, 503, `{"notReady":{"store":"write /data/wal: no space left on device"}}`, false)), adminv1.ComponentDiskFull, "no space left"},
		slow:                    {of(service(t, 0, "", true)), adminv1.ComponentNotReady, "readiness check"},
		"hung":                  {of("http://" + hung(t)), adminv1.ComponentUnresponsive, "no response"},
		"hung, only ready":      {Target{Ready: "http://" + hung(t)}, adminv1.ComponentUnresponsive, "no response"},
		"stopped":               {of("http://" + closedport.Address(t)), adminv1.ComponentUnreachable, "no connection"},
		"PostgreSQL with TLS":   {Target{PostgreSQL: postgresWithTLS}, adminv1.ComponentReady, ""},
		"PostgreSQL ends":       {Target{PostgreSQL: postgres("S")}, adminv1.ComponentNotReady, "TLS"},
		"PostgreSQL resets":     {Target{PostgreSQL: postgresResets}, adminv1.ComponentNotReady, "TLS"},
		"PostgreSQL":            {Target{PostgreSQL: postgres("N")}, adminv1.ComponentReady, ""},
		"PostgreSQL rejects":    {Target{PostgreSQL: postgres("E")}, adminv1.ComponentNotReady, "rejects"},
		"PostgreSQL hung":       {Target{PostgreSQL: hung(t)}, adminv1.ComponentUnresponsive, "no response"},
		"PostgreSQL is stopped": {Target{PostgreSQL: closedport.Address(t)}, adminv1.ComponentUnreachable, "no connection"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ask, err := tc.target.question()
			if err != nil {
				t.Fatal(err)
			}
			// What does not respond needs the whole time. Everything else may need it on a busy machine.
			limit := time.Minute
			switch {
			case tc.state == adminv1.ComponentUnresponsive:
				limit = 300 * time.Millisecond
			case name == slow:
				limit = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if state, message := Classify(ask(ctx)); state != tc.state || !strings.Contains(message, tc.message) {
				t.Errorf("%s %q, want %s %q", state, message, tc.state, tc.message)
			}
		})
	}
}

func TestHostedAPIServerNeedsNoCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Authorization")) > 0 {
			t.Error("the question has credentials")
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	if err := HostedAPIServer(t.Context(), server.URL); err != nil {
		t.Errorf("a response with status 401 proves that it works: %v", err)
	}
	if state, _ := Classify(HostedAPIServer(t.Context(), "https://"+closedport.Address(t))); state != adminv1.ComponentUnreachable {
		t.Errorf("%s", state)
	}
}

func TestClassifyLimitsReasons(t *testing.T) {
	_, message := Classify(errors.New(strings.Repeat("é\n", 1000)))
	if len([]rune(message)) > maxReason+1 || strings.Contains(message, "\n") {
		t.Errorf("%q", message)
	}
}

func TestLoadRejectsInvalidComponents(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"valid":          {"components:\n- {name: a, layer: backend, ready: 'http://127.0.0.1:1/readyz', alive: 'http://127.0.0.1:1/healthz'}\n- {name: b, layer: postgresql, postgresql: '127.0.0.1:1'}", ""},
		"unknown field":  {"components:\n- {name: a, layer: backend, url: x}", "url"},
		"unknown layer":  {"components:\n- {name: a, layer: backends, ready: 'http://a/'}", "components[0].layer"},
		"reserved name":  {"components:\n- {name: cosmos-db, layer: cosmos-db, ready: 'http://a/'}", "components[0].name"},
		"duplicate name": {"components:\n- {name: a, layer: backend, ready: 'http://a/'}\n- {name: a, layer: backend, ready: 'http://a/'}", "components[1].name"},
		"no question":    {"components:\n- {name: a, layer: backend}", "components[0].ready"},
		"two questions":  {"components:\n- {name: a, layer: backend, ready: 'http://a/', postgresql: 'a:1'}", "components[0].ready"},
		"not a URL":      {"components:\n- {name: a, layer: backend, ready: 'http://a/', alive: 'a:1'}", "components[0].alive"},
		"no port":        {"components:\n- {name: a, layer: backend, postgresql: a}", "components[0].postgresql"},
	}
	for name, tc := range tests {
		path := filepath.Join(t.TempDir(), "components.yaml")
		if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
