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
)

// admin is the subject that a request must have.
func admin() pkix.Name {
	return pkix.Name{CommonName: credential.CommonName, Organization: []string{credential.Organization}}
}

func ecdsaKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func request(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
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
		"good":    {reason: "a P-256 request is taken", text: good},
		"P-521":   {reason: "so is one on a larger curve", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ecdsaKey(t, elliptic.P521())))},
		"Ed25519": {reason: "and an Ed25519 one", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ed))},
		"RSA":     {reason: "and an RSA one", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, rsaKey(t, 2048)))},
		"absent":  {reason: "there must be one", want: []string{"Required value"}},
		"long":    {reason: "it is bounded", text: strings.Repeat("a", 20000), want: []string{"Too long: may not be more than 16384 bytes"}},
		"not PEM": {reason: "what is no PEM is not shown: it may be a secret", text: "secret", want: []string{"Invalid value: must be PEM of type CERTIFICATE REQUEST"}},
		"private key": {reason: "a private key sent by mistake is not shown", text: inPEM("PRIVATE KEY", []byte("secret")),
			want: []string{`Invalid value: "PRIVATE KEY": must be PEM of type CERTIFICATE REQUEST`}},
		"two": {reason: "a second block would be ignored by some and read by others", text: good + good,
			want: []string{"Invalid value: must be one PEM block, with nothing after it"}},
		"not DER": {reason: "it is PKCS #10", text: inPEM("CERTIFICATE REQUEST", []byte("x")), want: []string{"Invalid value: must be a PKCS #10 certificate signing request: "}},
		"other name": {reason: "the user is exactly one", text: of(x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{credential.Organization}}}),
			want: []string{`Invalid value: "CN=admin,O=system:masters": the subject's common name (CN) must be system:customer-break-glass:system-admin, once`}},
		"nobody": {reason: "every error is said at once", text: of(x509.CertificateRequest{}),
			want: []string{
				`Invalid value: "": the subject's common name (CN) must be system:customer-break-glass:system-admin, once`,
				`Invalid value: "": the subject's organization (O) must be system:masters, once`,
			}},
		"more groups": {reason: "the groups of the certificate are its organizations", text: of(x509.CertificateRequest{Subject: pkix.Name{CommonName: credential.CommonName, Organization: []string{credential.Organization, "others"}}}),
			want: []string{`Invalid value: "CN=system:customer-break-glass:system-admin,O=others+O=system:masters": the subject's organization (O) must be system:masters, once`}},
		"two names": {reason: "which of two names counts depends on the reader", text: of(x509.CertificateRequest{Subject: pkix.Name{Organization: []string{credential.Organization}, ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: []int{2, 5, 4, 3}, Value: "system:admin"}, {Type: []int{2, 5, 4, 3}, Value: credential.CommonName}}}}),
			want: []string{"Invalid value: "}},
		"alternative names": {reason: "a client certificate has none", text: of(x509.CertificateRequest{Subject: admin(), DNSNames: []string{"api.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}),
			want: []string{`Invalid value: "CN=system:customer-break-glass:system-admin,O=system:masters": must not have subject alternative names`}},
		"small RSA": {reason: "a key that can be broken is refused", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, rsaKey(t, 1024))),
			want: []string{`Invalid value: "RSA 1024": an RSA key must have 2048 to 8192 bits`}},
		"P-224": {reason: "and so is one on a small curve", text: inPEM("CERTIFICATE REQUEST", request(t, &x509.CertificateRequest{Subject: admin()}, ecdsaKey(t, elliptic.P224()))),
			want: []string{`Invalid value: "ECDSA P-224": an ECDSA key must be on the curve P-256, P-384 or P-521`}},
		"forged": {reason: "who asks has the key", text: inPEM("CERTIFICATE REQUEST", forged),
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
					t.Errorf("%s: %v, not %q", tc.reason, violation, tc.want[i])
				}
				if strings.Contains(violation.Message, "secret") {
					t.Errorf("%s: %v", tc.reason, violation)
				}
			}
		})
	}
}

// TestNewRequest: the service's own request is one that it would take, and is signed with the key that it comes with.
func TestNewRequest(t *testing.T) {
	key, text, err := credential.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	if found := credential.CheckRequest("field", string(text)); len(found) > 0 {
		t.Error(found)
	}
	keyBlock, _ := pem.Decode(key)
	private, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !private.(*ecdsa.PrivateKey).PublicKey.Equal(parsed.PublicKey) {
		t.Error("the request is for another key")
	}
}

func TestKubeconfig(t *testing.T) {
	access := credential.Access{Cluster: "demo", APIURL: "https://api.demo.example:443", ServingCA: "ca", Certificate: "certificate"}
	text, err := credential.Kubeconfig(access)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
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

// FuzzCheckRequest: any text is judged, and only a request for exactly the administrator passes.
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
			t.Errorf("%q was taken", text)
		}
	})
}
