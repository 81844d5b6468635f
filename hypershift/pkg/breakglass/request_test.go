package breakglass

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

func request(t testing.TB, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func named(name string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{"system:masters"}}}
}

func TestParse(t *testing.T) {
	const good = "system:customer-break-glass:system-admin"
	client := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
	withName := named(good)
	withName.DNSNames = []string{"x.example.com"}
	tests := map[string]struct {
		reason  string
		request []byte
		usages  []certificatesv1.KeyUsage
		fails   string
	}{
		"Good":        {"a valid request", request(t, named(good)), []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}, ""},
		"OtherClass":  {"a class signs only its own common names", request(t, named("system:sre-break-glass:x")), client, "common name"},
		"Admin":       {"the cluster's own administrator is not a break-glass user", request(t, named("system:admin")), client, "common name"},
		"Alternative": {"only client certificates are signed", request(t, withName), client, "alternative names"},
		"Server":      {"only client certificates are signed", request(t, named(good)), append(client, certificatesv1.UsageServerAuth), "usage"},
		"NoClient":    {"only client certificates are signed", request(t, named(good)), []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}, "client auth"},
		"NoRequest":   {"it is not a certificate request", []byte("x"), client, "PEM"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Request: tc.request, Usages: tc.usages}}, contract.CustomerBreakGlass)
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%v, want an error with %q: %s", err, tc.fails, tc.reason)
			}
		})
	}
}

func TestLifetime(t *testing.T) {
	for requested, want := range map[*int32]time.Duration{nil: 36 * time.Hour, new(int32(1)): 10 * time.Minute, new(int32(86400)): 24 * time.Hour, new(int32(1 << 30)): 36 * time.Hour} {
		if got := lifetime(requested); got != want {
			t.Errorf("lifetime for %v is %s, want %s", requested, got, want)
		}
	}
}

// FuzzParse checks that accepted requests are valid.
func FuzzParse(f *testing.F) {
	f.Add(request(f, named("system:customer-break-glass:system-admin")))
	f.Add(request(f, named("system:admin")))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		spec := certificatesv1.CertificateSigningRequestSpec{Request: text, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}
		parsed, err := parse(&certificatesv1.CertificateSigningRequest{Spec: spec}, contract.CustomerBreakGlass)
		if err == nil && (!strings.HasPrefix(parsed.Subject.CommonName, "system:customer-break-glass:") || parsed.CheckSignature() != nil) {
			t.Errorf("accepted a request of %q", parsed.Subject)
		}
	})
}
