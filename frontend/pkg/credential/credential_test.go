package credential_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/credential"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// admin returns the required subject of a request.
func admin() pkix.Name {
	return pkix.Name{CommonName: credential.CommonName, Organization: []string{credential.Organization}}
}

func ecdsaKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(curve, rand.Reader))(t)
}

func rsaKey(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	return must.Get(rsa.GenerateKey(rand.Reader, bits))(t)
}

func request(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	return must.Get(x509.CreateCertificateRequest(rand.Reader, template, key))(t)
}

func inPEM(blockType string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
}

func TestCheckRequest(t *testing.T) {
	p256 := ecdsaKey(t, elliptic.P256())
	of := func(template x509.CertificateRequest) string {
		return inPEM("CERTIFICATE REQUEST", request(t, &template, p256))
	}
	good := of(x509.CertificateRequest{Subject: admin()})
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := request(t, &x509.CertificateRequest{Subject: admin()}, p256)
	forged[len(forged)-1] ^= 1
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"good":    {reason: "a P-256 key is valid", text: good},
		"P-521":   {reason: "a key on a larger curve is valid", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ecdsaKey(t, elliptic.P521())))},
		"Ed25519": {reason: "an Ed25519 key is valid", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ed))},
		"RSA":     {reason: "an RSA key is valid", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, rsaKey(t, 2048)))},
		"absent":  {reason: "the request is required", want: []string{"Required value"}},
		"long":    {reason: "the length is limited", text: strings.Repeat("a", 20000), want: []string{"Too long: may not be more than 16384 bytes"}},
		"not PEM": {reason: "the message does not repeat text that is not PEM: it may be a secret", text: "secret", want: []string{"Invalid value: must be PEM of type CERTIFICATE REQUEST"}},
		"private key": {reason: "the message does not repeat a private key", text: inPEM("PRIVATE KEY", []byte("secret")),
			want: []string{`Invalid value: "PRIVATE KEY": must be PEM of type CERTIFICATE REQUEST`}},
		"two": {reason: "parsers differ in how they treat a second block", text: good + good,
			want: []string{"Invalid value: must be one PEM block, with nothing after it"}},
		"not DER": {reason: "the block must be PKCS #10", text: inPEM("CERTIFICATE REQUEST", []byte("x")), want: []string{"Invalid value: must be a PKCS #10 certificate signing request: "}},
		"other name": {reason: "another user is invalid", text: of(x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{credential.Organization}}}),
			want: []string{`Invalid value: "CN=admin,O=system:masters": the subject's common name (CN) must be system:customer-break-glass:system-admin, once`}},
		"empty subject": {reason: "all violations are reported", text: of(x509.CertificateRequest{}),
			want: []string{
				`Invalid value: "": the subject's common name (CN) must be system:customer-break-glass:system-admin, once`,
				`Invalid value: "": the subject's organization (O) must be system:masters, once`,
			}},
		"more groups": {reason: "organizations are the groups of the user", text: of(x509.CertificateRequest{Subject: pkix.Name{CommonName: credential.CommonName, Organization: []string{credential.Organization, "others"}}}),
			want: []string{`Invalid value: "CN=system:customer-break-glass:system-admin,O=others+O=system:masters": the subject's organization (O) must be system:masters, once`}},
		"two names": {reason: "parsers differ in which of two names they use", text: of(x509.CertificateRequest{Subject: pkix.Name{Organization: []string{credential.Organization}, ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: []int{2, 5, 4, 3}, Value: "system:admin"}, {Type: []int{2, 5, 4, 3}, Value: credential.CommonName}}}}),
			want: []string{"Invalid value: "}},
		"alternative names": {reason: "client certificates have no alternative names", text: of(x509.CertificateRequest{Subject: admin(), DNSNames: []string{"api.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}),
			want: []string{`Invalid value: "CN=system:customer-break-glass:system-admin,O=system:masters": must not have subject alternative names`}},
		"small RSA": {reason: "a weak key is invalid", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, rsaKey(t, 1024))),
			want: []string{`Invalid value: "RSA 1024": an RSA key must have 2048 to 8192 bits`}},
		"P-224": {reason: "a key on a small curve is invalid", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ecdsaKey(t, elliptic.P224()))),
			want: []string{`Invalid value: "ECDSA P-224": an ECDSA key must be on the curve P-256, P-384 or P-521`}},
		"forged": {reason: "the request must be signed with its own key", text: inPEM("CERTIFICATE REQUEST", forged),
			want: []string{`Invalid value: "ECDSA-SHA256": the signature does not verify with the request's own key`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := credential.CheckRequest("field", tc.text)
			if len(found) != len(tc.want) {
				t.Fatalf("%s: found %v", tc.reason, found)
			}
			for i, violation := range found {
				if violation.Field != "field" || !strings.HasPrefix(violation.Message, tc.want[i]) {
					t.Errorf("%s: got %v, want %q", tc.reason, violation, tc.want[i])
				}
				if strings.Contains(violation.Message, "secret") {
					t.Errorf("%s: %v", tc.reason, violation)
				}
			}
		})
	}
}

// TestNewRequest: a generated request is valid and signed with the returned key.
func TestNewRequest(t *testing.T) {
	key, text, err := credential.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	if found := credential.CheckRequest("field", string(text)); len(found) > 0 {
		t.Error(found)
	}
	keyBlock, _ := pem.Decode(key)
	private := must.Get(x509.ParsePKCS8PrivateKey(keyBlock.Bytes))(t)
	block, _ := pem.Decode(text)
	parsed := must.Get(x509.ParseCertificateRequest(block.Bytes))(t)
	if !private.(*ecdsa.PrivateKey).PublicKey.Equal(parsed.PublicKey) {
		t.Error("the request has another key")
	}
}

func TestKubeconfig(t *testing.T) {
	access := credential.Access{Cluster: "demo", APIURL: "https://api.demo.example:443", ServingCA: "ca", Certificate: "certificate"}
	text, err := credential.Kubeconfig(access)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	must.Do(t, yaml.Unmarshal([]byte(text), &got))
	want := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "customer-break-glass@demo",
		"clusters": []any{map[string]any{"name": "demo", "cluster": map[string]any{"server": "https://api.demo.example:443", "certificate-authority-data": "Y2E="}}},
		"contexts": []any{map[string]any{"name": "customer-break-glass@demo", "context": map[string]any{"cluster": "demo", "user": "customer-break-glass"}}},
		"users":    []any{map[string]any{"name": "customer-break-glass", "user": map[string]any{"client-certificate-data": "Y2VydGlmaWNhdGU="}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	access.Key = []byte("key")
	if text, err = credential.Kubeconfig(access); err != nil || !strings.Contains(text, "client-key-data: a2V5\n") {
		t.Errorf("with a key: %v, %s", err, text)
	}
}

// FuzzCheckRequest: no input causes a panic, and only requests for the administrator are valid.
func FuzzCheckRequest(f *testing.F) {
	_, good, err := credential.NewRequest()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Add(inPEM("CERTIFICATE REQUEST", request(f, &x509.CertificateRequest{Subject: admin(), DNSNames: []string{"a"}}, ecdsaKey(f, elliptic.P256()))))
	f.Add(inPEM("CERTIFICATE REQUEST", nil))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\na: b\n\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(credential.CheckRequest("field", text)) > 0 {
			return
		}
		block, _ := pem.Decode([]byte(text))
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || parsed.CheckSignature() != nil || parsed.Subject.CommonName != credential.CommonName || len(parsed.Subject.Organization) != 1 {
			t.Errorf("%q was accepted", text)
		}
	})
}
