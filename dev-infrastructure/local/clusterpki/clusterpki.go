// Package clusterpki issues the certificates of one management cluster of the local region: an authority of its own, the
// API server's serving certificate, client certificates by Kubernetes user and group, and the service account's key. The
// authority and the key are kept; certificates are issued anew whenever the region starts, so that none grows old.
package clusterpki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	authorityLifetime   = 10 * 365 * 24 * time.Hour
	certificateLifetime = 365 * 24 * time.Hour
	clockSkew           = 5 * time.Minute
)

// Authority issues certificates into its folder.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Open reads the authority in dir (ca.crt, ca.key, and sa.key beside them), or makes it.
func Open(dir, name string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	if err := a.read(); err == nil {
		return a, nil
	} else if !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading the certificate authority in %s: %w", dir, err)
	}
	if err := a.makeKey("sa.key"); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.key = key
	a.certificate = &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if err := a.writeKey("ca.key", key); err != nil {
		return nil, err
	}
	// The certificate comes last: an authority is whole when it is there.
	if err := a.sign("ca.crt", a.certificate, key); err != nil {
		return nil, err
	}
	return a, a.read()
}

func (a *Authority) read() error {
	certificatePEM, err := os.ReadFile(a.Path("ca.crt"))
	if err != nil {
		return err
	}
	keyPEM, err := os.ReadFile(a.Path("ca.key"))
	if err != nil {
		return err
	}
	certificateBlock, _ := pem.Decode(certificatePEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certificateBlock == nil || keyBlock == nil {
		return fmt.Errorf("ca.crt or ca.key is not PEM")
	}
	if a.certificate, err = x509.ParseCertificate(certificateBlock.Bytes); err != nil {
		return err
	}
	a.key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	return err
}

// Path is a file in the authority's folder.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// Serving issues name.crt and name.key for a server with hosts, DNS names or IP addresses.
func (a *Authority) Serving(name string, hosts ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return a.issue(name, template)
}

// Client issues name.crt and name.key for the Kubernetes user in groups, and name.kubeconfig that uses them at server.
func (a *Authority) Client(name, cluster, server, user string, groups ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := a.issue(name, template); err != nil {
		return err
	}
	contents := map[string]string{}
	for _, file := range []string{"ca.crt", name + ".crt", name + ".key"} {
		data, err := os.ReadFile(a.Path(file))
		if err != nil {
			return err
		}
		contents[file] = base64.StdEncoding.EncodeToString(data)
	}
	kubeconfig := strings.NewReplacer(
		"{cluster}", cluster, "{server}", server, "{user}", user,
		"{ca}", contents["ca.crt"], "{certificate}", contents[name+".crt"], "{key}", contents[name+".key"],
	).Replace(kubeconfigTemplate)
	return a.write(name+".kubeconfig", []byte(kubeconfig))
}

const kubeconfigTemplate = `apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
`

func (a *Authority) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	template.NotAfter = time.Now().Add(certificateLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if err := a.writeKey(name+".key", key); err != nil {
		return err
	}
	return a.sign(name+".crt", template, key)
}

func (a *Authority) makeKey(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return a.writeKey(name, key)
}

func (a *Authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return fmt.Errorf("issuing %s: %w", name, err)
	}
	return a.write(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (a *Authority) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return a.write(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (a *Authority) write(name string, data []byte) error {
	part := a.Path(name + ".part")
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return err
	}
	return os.Rename(part, a.Path(name))
}
