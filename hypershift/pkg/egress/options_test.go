package egress

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func parse(t *testing.T, arguments string) (*Flags, error) {
	t.Helper()
	var f Flags
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	f.AddFlags(flags)
	if err := flags.Parse(strings.Fields(arguments)); err != nil {
		return nil, err
	}
	return &f, f.Validate()
}

func TestFlags(t *testing.T) {
	const files = " --tls-cert=a --tls-key=b --client-ca-file=c"
	for name, c := range map[string]struct{ reason, arguments, names string }{
		"Certificates":        {"the address of a local region", "--listen=127.0.0.1:0" + files, ""},
		"Cleartext":           {"the address of HyperShift's control planes", "--listen-cleartext=127.0.0.1:0", ""},
		"Both":                {"a management cluster may have both", "--listen=127.0.0.1:0 --listen-cleartext=127.0.0.1:0" + files, ""},
		"Exceptions":          {"hosts with their ports", "--listen-cleartext=:1 --allow=127.0.0.1:18400 --allow=issuer.local:443", ""},
		"NoAddress":           {"nothing to do", "", "--listen"},
		"NoFiles":             {"clients could not be verified", "--listen=:1", "--client-ca-file"},
		"NoAuthority":         {"clients could not be verified", "--listen=:1 --tls-cert=a --tls-key=b", "--client-ca-file"},
		"FilesWithoutAddress": {"the files would not be used", "--listen-cleartext=:1" + files, "--tls-cert"},
		"ExceptionOfAll":      {"an exception is for one port", "--listen-cleartext=:1 --allow=127.0.0.1", "allow"},
		"NoTunnels":           {"nobody could connect", "--listen-cleartext=:1 --tunnels=0", "--tunnels"},
		"NoTunnelsPerClient":  {"nobody could connect", "--listen-cleartext=:1 --tunnels-per-control-plane=0", "--tunnels-per-control-plane"},
		"NoLifetime":          {"tunnels would end at once", "--listen-cleartext=:1 --tunnel-lifetime=0s", "--tunnel-lifetime"},
		"NoIdle":              {"tunnels would end at once", "--listen-cleartext=:1 --tunnel-idle=-1s", "--tunnel-idle"},
		"NoBytes":             {"tunnels would end at once", "--listen-cleartext=:1 --tunnel-bytes=0", "--tunnel-bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.arguments)
			if c.names == "" && err != nil || c.names != "" && (err == nil || !strings.Contains(err.Error(), c.names)) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// TestRun runs the proxy with both addresses as the program does, with an exception for a server on this machine. A client without a
// certificate, such as one with HTTPS_PROXY, uses the second address.
func TestRun(t *testing.T) {
	issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "keys") }))
	defer issuer.Close()
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server that is no exception got a request") }))
	defer other.Close()
	authority := must.Get(kubeapi.CreateEgressAuthority(t.TempDir()))(t)
	f := must.Get(parse(t, "--listen=127.0.0.1:0 --listen-cleartext=127.0.0.1:0 --tls-cert="+authority.CertificateFile()+" --tls-key="+authority.KeyFile()+
		" --client-ca-file="+authority.CAFile()+" --allow="+issuer.Listener.Addr().String()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan []net.Addr, 1), make(chan error, 1)
	go func() {
		done <- f.Run(ctx, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(t.Output(), nil)), func(addresses []net.Addr) { ready <- addresses })
	}()
	var certified, cleartext string
	select {
	case addresses := <-ready:
		certified, cleartext = addresses[0].String(), addresses[1].String()
	case err := <-done:
		t.Fatal(err)
	}
	transport := issuer.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: cleartext})
	client := &http.Client{Transport: transport}
	if text, err := get(client, issuer.URL); err != nil || text != "200 OK keys" {
		t.Errorf("the exception: %s, %v", text, err)
	}
	if text, err := get(client, other.URL); err == nil {
		t.Errorf("another port of this machine responded %s", text)
	}
	transport.CloseIdleConnections()
	p := &proxy{dial: dialTCP(certified), authority: authority}
	if _, response := p.connect(t, p.credentials(t, "plane-a"), issuer.Listener.Addr().String()); response.StatusCode != http.StatusOK {
		t.Errorf("a client with a certificate: %s", response.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
