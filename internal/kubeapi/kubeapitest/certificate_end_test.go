package kubeapitest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRequestsEndWithCertificate sends requests over one connection until the client's certificate has ended. The API server verifies the
// certificate in each request, so it refuses the next one although the connection is open.
func TestRequestsEndWithCertificate(t *testing.T) {
	cluster := kubeapitest.Start(t)
	signer := must.Get(authority.Open(filepath.Dir(cluster.Kubeconfig()), "test"))(t)
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "thief", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(signer.CertificatePEM())
	var client http.Client
	defer func() { client.CloseIdleConnections() }()
	get := func() (status int, reused bool, err error) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, cluster.Server+"/api/v1/namespaces/default", nil)
		if err != nil {
			return 0, false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, reused, err
		}
		defer func() { _ = response.Body.Close() }()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, reused, err
	}
	var pair tls.Certificate
	eventually.WithinLifetime(t, func(lifetime time.Duration) error {
		must.Do(t, signer.IssueFor(lifetime, certificate, key, template))
		pair = must.Get(tls.LoadX509KeyPair(certificate, key))(t)
		client.CloseIdleConnections()
		client.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
		if status, reused, err := get(); status != http.StatusOK || reused || err != nil {
			return fmt.Errorf("the first request: %d, %t, %v", status, reused, err)
		}
		return nil
	})
	eventually.Soon(t, "the API server refuses requests", func() error {
		asked := time.Now()
		status, reused, err := get()
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			t.Fatalf("a request failed: %v", err)
		case !reused:
			t.Fatal("the connection was replaced")
		case status == http.StatusOK && asked.After(pair.Leaf.NotAfter):
			t.Fatalf("a request was served %s after the end of the certificate", asked.Sub(pair.Leaf.NotAfter))
		case status != http.StatusUnauthorized:
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	if now := time.Now(); now.Before(pair.Leaf.NotAfter) {
		t.Errorf("a request was refused %s before the end of the certificate", pair.Leaf.NotAfter.Sub(now))
	}
}
