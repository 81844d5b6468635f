package arm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestCredentialHasRSAKeyAndFastSignature: the certificate of an identity belongs to the RSA key beside it, and its signature is not one of RSA, of
// which a creation of a cluster would need eight.
func TestCredentialHasRSAKeyAndFastSignature(t *testing.T) {
	s := New(Options{})
	issued := must.Get(s.issueCredential(&Resource{Properties: map[string]any{"clientId": "client"}}, "https://identity.example"))(t)
	text := must.Get(base64.StdEncoding.DecodeString(issued.ClientSecret))(t)
	pair := must.Get(tls.X509KeyPair(text, text))(t) // it fails unless the key is that of the certificate
	if leaf := pair.Leaf; leaf.PublicKeyAlgorithm != x509.RSA || leaf.SignatureAlgorithm != x509.ECDSAWithSHA256 || leaf.Subject.CommonName != "client" {
		t.Errorf("certificate of %s with a key of %s, signed with %s", leaf.Subject.CommonName, leaf.PublicKeyAlgorithm, leaf.SignatureAlgorithm)
	}
}
