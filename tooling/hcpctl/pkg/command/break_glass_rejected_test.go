package command

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// TestRejectedCertificateIsRenewed calls the plugin of a kubeconfig while the API server rejects the certificate, because its class was
// revoked. The plugin renews it. If it cannot, it does not return the rejected certificate.
func TestRejectedCertificateIsRenewed(t *testing.T) {
	var status atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 {
			t.Error("the request has no certificate")
		}
		w.WriteHeader(int(status.Load()))
	}))
	// The server names the authorities that it trusts, and that of the certificate is not one of them.
	trusted := x509.NewCertPool()
	trusted.AddCert(&x509.Certificate{Raw: []byte("authority"), RawSubject: []byte{0x30, 0x00}})
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, ClientCAs: trusted}
	server.StartTLS()
	t.Cleanup(server.Close)
	// The server's own pair serves as the engineer's: only the response matters.
	pair := server.TLS.Certificates[0]
	key := must.Get(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	certificate := encode("CERTIFICATE", pair.Certificate[0])
	file := filepath.Join(t.TempDir(), "sre.kubeconfig.access")
	for name, tc := range map[string]struct {
		reason string
		status int
		// refused is admin's error to the request for another certificate.
		refused  string
		requests int
		fails    string
	}{
		"accepted":             {"the certificate lasts", http.StatusOK, "", 0, ""},
		"forbidden":            {"it is authenticated", http.StatusForbidden, "", 0, ""},
		"rejected":             {"another one is requested", http.StatusUnauthorized, "", 1, ""},
		"rejected and refused": {"the rejected one is not returned", http.StatusUnauthorized, "Your elevation has ended.", 1, "the API server rejects the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newSREs(t)
			a.issue("another certificate", time.Now().Add(15*time.Minute))
			if tc.refused != "" {
				a.refused["POST /clusters/demo/credentials"] = tc.refused
			}
			status.Store(int32(tc.status))
			access := credential.Access{Cluster: "demo", Level: "reader", Request: "csr", Key: encode("PRIVATE KEY", key), Certificate: certificate,
				Credential: "c", Expires: time.Now().Add(14 * time.Minute), Server: server.URL, Authority: certificate}
			content, err := access.Encode()
			if err == nil {
				err = os.WriteFile(file, content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := a.hcpctl(t, "break-glass", "certificate", "--access", file)
			if (err == nil) != (tc.fails == "") || err != nil && (!strings.Contains(err.Error(), tc.fails) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.fails)
			}
			if len(a.asked) != tc.requests {
				t.Errorf("%s: admin was asked %q, want %d requests", tc.reason, a.asked, tc.requests)
			}
			if err != nil {
				return
			}
			var response struct {
				Status struct {
					Certificate string `json:"clientCertificateData"`
				}
			}
			want := certificate
			if tc.requests > 0 {
				want = "another certificate"
			}
			if err := json.Unmarshal([]byte(out), &response); err != nil || response.Status.Certificate != want {
				t.Errorf("%s: the plugin returns %q, %v", tc.reason, response.Status.Certificate, err)
			}
		})
	}
}
