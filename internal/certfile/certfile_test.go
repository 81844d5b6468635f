package certfile_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// files are the files of a server's certificate and of the authorities that its clients trust.
type files struct{ certificate, key, roots string }

func newFiles(t *testing.T) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
}

func (f files) issue(t *testing.T, signer *authority.Authority) {
	t.Helper()
	template := x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	must.Do(t, signer.Issue(f.certificate, f.key, template, "127.0.0.1"))
}

func (f files) trust(t *testing.T, signers ...*authority.Authority) {
	t.Helper()
	var text []byte
	for _, signer := range signers {
		text = append(text, signer.CertificatePEM()...)
	}
	must.Do(t, authority.WriteFile(f.roots, text, 0o644))
}

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	return must.Get(authority.Open(t.TempDir(), "test"))(t)
}

// TestAuthorityIsReplaced replaces the authority of a running server and of its client, with both authorities trusted meanwhile.
func TestAuthorityIsReplaced(t *testing.T) {
	f, first, second := newFiles(t), newAuthority(t), newAuthority(t)
	f.issue(t, first)
	f.trust(t, first)
	pair := must.Get(certfile.LoadPair(f.certificate, f.key))(t)
	roots := must.Get(certfile.LoadRoots(f.roots))(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	server.Listener = tls.NewListener(server.Listener, pair.ServerConfig())
	server.Start()
	defer server.Close()
	address := "https://" + server.Listener.Addr().String()
	client := &http.Client{Transport: roots.Transport(&http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}})}
	defer client.CloseIdleConnections()
	// get returns the serial number of the server's certificate.
	get := func(step string) string {
		t.Helper()
		response, err := client.Get(address)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		defer response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	before := get("the first authority")
	f.trust(t, first, second)
	if get("both are trusted") != before {
		t.Error("the certificate changed although its files did not")
	}
	f.issue(t, second)
	client.CloseIdleConnections()
	if get("the second issues") == before {
		t.Error("the server presents the previous certificate")
	}
	f.trust(t, second)
	get("only the second is trusted")
	// The transport closes its connections when the authorities change, so the next request needs a handshake.
	f.trust(t, first)
	if response, err := client.Get(address); err == nil {
		_ = response.Body.Close()
		t.Error("the client trusts a server of an authority that was removed")
	}
}

// TestIncompleteReplacementKeepsThePrevious checks that half of a replacement is not used, and that its end is.
func TestIncompleteReplacementKeepsThePrevious(t *testing.T) {
	f, signer := newFiles(t), newAuthority(t)
	f.issue(t, signer)
	f.trust(t, signer)
	pair := must.Get(certfile.LoadPair(f.certificate, f.key))(t)
	roots := must.Get(certfile.LoadRoots(f.roots))(t)
	certificate, pool := pair.Certificate(), roots.Pool()
	for name, damage := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"missing": os.Remove,
	} {
		for _, path := range []string{f.key, f.roots} {
			must.Do(t, damage(path))
		}
		if pair.Certificate() != certificate || roots.Pool() != pool {
			t.Errorf("%s: the previous content is not in use", name)
		}
	}
	f.issue(t, signer)
	f.trust(t, signer, newAuthority(t))
	if pair.Certificate() == certificate || roots.Pool() == pool {
		t.Error("the complete replacement is not in use")
	}
}

// TestOlderFilesAreNoticed replaces files by older ones, as a restored Secret does.
func TestOlderFilesAreNoticed(t *testing.T) {
	f, signer := newFiles(t), newAuthority(t)
	f.issue(t, signer)
	pair := must.Get(certfile.LoadPair(f.certificate, f.key))(t)
	certificate := pair.Certificate()
	f.issue(t, signer)
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{f.certificate, f.key} {
		must.Do(t, os.Chtimes(path, old, old))
	}
	if pair.Certificate() == certificate {
		t.Error("the replacement is not in use")
	}
}

func TestInvalidFilesAreErrors(t *testing.T) {
	f := newFiles(t)
	if _, err := certfile.LoadPair(f.certificate, f.key); err == nil {
		t.Error("missing files are accepted as a certificate")
	}
	must.Do(t, os.WriteFile(f.roots, []byte("no certificate"), 0o600))
	if _, err := certfile.LoadRoots(f.roots); err == nil {
		t.Error("a file without a certificate is accepted as authorities")
	}
}

// TestEndOfCertificateIsAMetric checks that the metric follows a replacement.
func TestEndOfCertificateIsAMetric(t *testing.T) {
	f, signer := newFiles(t), newAuthority(t)
	f.issue(t, signer)
	pair := must.Get(certfile.LoadPair(f.certificate, f.key))(t)
	collector := certfile.Collector(pair.Certificate)
	if got, want := testutil.ToFloat64(collector), float64(pair.Certificate().Leaf.NotAfter.Unix()); got != want {
		t.Errorf("the metric is %v, want %v", got, want)
	}
	template := x509.Certificate{Subject: pkix.Name{CommonName: "server"}}
	must.Do(t, signer.IssueFor(time.Hour, f.certificate, f.key, template))
	if got, want := testutil.ToFloat64(collector), float64(pair.Certificate().Leaf.NotAfter.Unix()); got != want || want > float64(time.Now().Add(2*time.Hour).Unix()) {
		t.Errorf("after the replacement the metric is %v, want %v", got, want)
	}
}
