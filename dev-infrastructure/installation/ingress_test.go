package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// startIngress serves admin under the name of its ingress, for programs of the machine. The name does not resolve there, so it returns the URL
// of an HTTP proxy that connects to this name and to nothing else.
func (r *region) startIngress() (proxyURL string) {
	r.t.Helper()
	const server = "admin.admin.svc"
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.authority.CertificatePEM())
	pods := r.forwardPod("admin", "app.kubernetes.io/name=admin", "8444")
	upstream := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: server},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", pods)
		}}
	host := r.text("ingress", "admin", "host")
	address := r.listenHTTPS(host, mesh.Admin, &httputil.ReverseProxy{Transport: upstream, Rewrite: func(request *httputil.ProxyRequest) {
		request.SetURL(&url.URL{Scheme: "https", Host: server})
		request.Out.Host = request.In.Host
	}})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodConnect || request.Host != host+":443" {
			http.Error(w, "this proxy connects to admin only", http.StatusForbidden)
			return
		}
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			r.t.Error(err)
			return
		}
		if _, err := client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
			_ = client.Close()
			return
		}
		relay(client, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(r.ctx, "tcp", address) })
	}))
	r.t.Cleanup(proxy.Close)
	return proxy.URL
}

// tokenFile is the file with the token that the Azure CLI prints.
func (p *pipelines) tokenFile() string { return filepath.Join(p.dir, "engineer-token.json") }

// prepareEngineer builds hcpctl, and writes an Azure CLI that prints the token of signIn. The rollout finds both in its PATH, and connects to admin
// through the proxy.
func (p *pipelines) prepareEngineer(proxyURL string) {
	p.t.Helper()
	programs := p.t.TempDir()
	if output, err := exec.CommandContext(p.ctx, "go", "build", "-o", filepath.Join(programs, "hcpctl"), "../../tooling/hcpctl/cmd/hcpctl").CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, output)
	}
	cli := fmt.Sprintf("#!/bin/sh\ncat '%s'\n", p.tokenFile())
	if err := os.WriteFile(filepath.Join(programs, "az"), []byte(cli), 0o700); err != nil {
		p.t.Fatal(err)
	}
	known := map[string]string{}
	for _, variable := range p.env {
		name, value, _ := strings.Cut(variable, "=")
		known[name] = value
	}
	authorities, err := os.ReadFile(known["SSL_CERT_FILE"])
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.dir, "authorities.pem")
	if err := os.WriteFile(file, bytes.Join([][]byte{authorities, p.authority.CertificatePEM()}, []byte("\n")), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.env = append(p.env, "SSL_CERT_FILE="+file, "PATH="+programs+string(os.PathListSeparator)+known["PATH"], "HTTPS_PROXY="+proxyURL)
}

// signIn signs the engineer with the role reader in to the Azure CLI.
func (p *pipelines) signIn() {
	p.t.Helper()
	token, err := json.Marshal(map[string]any{"accessToken": p.engineerToken("reader"), "expires_on": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.tokenFile(), token, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
