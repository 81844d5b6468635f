package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

func TestAuthority(t *testing.T) {
	now := time.Now()
	created, err := NewAuthority("root", now)
	if err != nil {
		t.Fatal(err)
	}
	root, err := ReadAuthority(created.Pair) // as the next pass reads it
	if err != nil {
		t.Fatal(err)
	}
	server, err := root.Server("kubernetes", []string{"api.example.com", "127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := root.Client("system:admin", []string{"system:masters"}, now)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root.Cert)
	verify := func(pair Pair, options x509.VerifyOptions) error {
		if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
			return err
		}
		cert, err := ReadCertificate(pair.Cert)
		if err != nil {
			return err
		}
		options.Roots = pool
		_, err = cert.Verify(options)
		return err
	}
	for _, name := range []string{"api.example.com", "127.0.0.1"} {
		if err := verify(server, x509.VerifyOptions{DNSName: name}); err != nil {
			t.Errorf("server as %s: %v", name, err)
		}
	}
	if err := verify(server, x509.VerifyOptions{DNSName: "other.example.com"}); err == nil {
		t.Error("the server's certificate is valid for another name")
	}
	if err := verify(client, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := verify(client, x509.VerifyOptions{}); err == nil {
		t.Error("the client's certificate is valid for a server")
	}
	other, err := NewAuthority("other", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAuthority(Pair{Cert: root.Cert, Key: other.Key}); err == nil {
		t.Error("a certificate is accepted with the key of another one")
	}
}

func TestSigningKey(t *testing.T) {
	private, public, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := SigningPublicKey(private); err != nil || string(again) != string(public) {
		t.Errorf("the public key changed: %v", err)
	}
	if _, err := SigningPublicKey(public); err == nil {
		t.Error("a public key was accepted as a private key")
	}
	root, err := NewAuthority("elliptic", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SigningPublicKey(root.Key); err == nil {
		t.Error("an elliptic key was accepted")
	}
}

func FuzzReadKey(f *testing.F) {
	private, public, err := NewSigningKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(private)
	f.Add(public)
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nMAMCAQE=\n-----END EC PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nMAMCAQE=\n-----END RSA PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ReadKey(text)
		if (key == nil) == (err == nil) {
			t.Errorf("key %T, error %v", key, err)
		}
	})
}
