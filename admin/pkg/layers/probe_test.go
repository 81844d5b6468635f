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
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
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

// hung returns the address of a server that accepts connections and never responds, like a process that SIGSTOP stopped. The channel is closed when a request
// has arrived.
func hung(t *testing.T) (address string, asked <-chan struct{}) {
	t.Helper()
	arrived := make(chan struct{})
	note := sync.OnceFunc(func() { close(arrived) })
	var open []net.Conn
	t.Cleanup(func() { // after the end of listen
		for _, c := range open {
			_ = c.Close()
		}
	})
	address = listen(t, func(c net.Conn) {
		open = append(open, c)
		if _, err := c.Read(make([]byte, 1)); err == nil {
			note()
		}
	})
	return address, arrived
}

// timeLimit is a context whose time limit is reached when the test closes reached.
type timeLimit struct {
	context.Context
	reached <-chan struct{}
}

// Done implements context.Context.
func (l timeLimit) Done() <-chan struct{} { return l.reached }

// Err implements context.Context.
func (l timeLimit) Err() error {
	select {
	case <-l.reached:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// service returns the URL of a server with a fixed response of /readyz.
func service(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
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
	hungService, serviceAsked := hung(t)
	onlyReady, onlyReadyAsked := hung(t)
	hungPostgres, postgresAsked := hung(t)
	tests := map[string]struct {
		target  Target
		state   adminv1.ComponentState
		message string
		// limit is closed when the time limit is reached; nil means never.
		limit <-chan struct{}
	}{
		"ready":                 {of(service(t, 200, "")), adminv1.ComponentReady, "", nil},
		"dependency not ready":  {of(service(t, 503, `{"ready":false,"notReady":{"postgresql":"connection refused by peer"}}`)), adminv1.ComponentNotReady, "postgresql", nil},
		"Kubernetes' checks":    {of(service(t, 500, "[+]ping ok\n[-]etcd failed: reason withheld\n")), adminv1.ComponentNotReady, "etcd failed", nil},
		"disk full":             {of(service(t, 503, `{"notReady":{"store":"write /data/wal: no space left on device"}}`)), adminv1.ComponentDiskFull, "no space left", nil},
		"hung":                  {of("http://" + hungService), adminv1.ComponentUnresponsive, "no response", serviceAsked},
		"hung, only ready":      {Target{Ready: "http://" + onlyReady}, adminv1.ComponentUnresponsive, "no response", onlyReadyAsked},
		"stopped":               {of("http://" + netfault.ClosedAddress(t)), adminv1.ComponentUnreachable, "no connection", nil},
		"PostgreSQL with TLS":   {Target{PostgreSQL: postgresWithTLS}, adminv1.ComponentReady, "", nil},
		"PostgreSQL ends":       {Target{PostgreSQL: postgres("S")}, adminv1.ComponentNotReady, "TLS", nil},
		"PostgreSQL resets":     {Target{PostgreSQL: postgresResets}, adminv1.ComponentNotReady, "TLS", nil},
		"PostgreSQL":            {Target{PostgreSQL: postgres("N")}, adminv1.ComponentReady, "", nil},
		"PostgreSQL rejects":    {Target{PostgreSQL: postgres("E")}, adminv1.ComponentNotReady, "rejects", nil},
		"PostgreSQL hung":       {Target{PostgreSQL: hungPostgres}, adminv1.ComponentUnresponsive, "no response", postgresAsked},
		"PostgreSQL is stopped": {Target{PostgreSQL: netfault.ClosedAddress(t)}, adminv1.ComponentUnreachable, "no connection", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ask, err := tc.target.question()
			if err != nil {
				t.Fatal(err)
			}
			ctx := timeLimit{context.Background(), tc.limit}
			if state, message := Classify(ask(ctx)); state != tc.state || !strings.Contains(message, tc.message) {
				t.Errorf("%s %q, want %s %q", state, message, tc.state, tc.message)
			}
		})
	}
}

// slowReadiness is the connection to a process that runs and whose readiness check does not complete.
type slowReadiness struct{}

// RoundTrip implements http.RoundTripper.
func (slowReadiness) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/healthz" {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestSlowReadinessCheckIsNotReady asks a process that runs and whose readiness check does not complete. The clock is that of the bubble.
func TestSlowReadinessCheckIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		err := askReady(ctx, &http.Client{Transport: slowReadiness{}}, "http://slow/readyz", "http://slow/healthz")
		if state, message := Classify(err); state != adminv1.ComponentNotReady || !strings.Contains(message, "readiness check") {
			t.Errorf("%s %q, want %s", state, message, adminv1.ComponentNotReady)
		}
	})
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
	if state, _ := Classify(HostedAPIServer(t.Context(), "https://"+netfault.ClosedAddress(t))); state != adminv1.ComponentUnreachable {
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
