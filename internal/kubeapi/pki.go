package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Authority issues the certificates of one cluster into a folder: its own certificate authority, the API server's
// serving certificate, client certificates by Kubernetes user and group, and the service-account key. The authority and
// the key are kept; the other certificates are issued at each start of the cluster, so that none expires.
type Authority struct {
	dir    string
	signer *authority.Authority
}

// Open reads the authority in dir (ca.crt, ca.key, sa.key and EncryptionFile), or creates it.
func Open(dir, name string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	signer, err := authority.Open(dir, name)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, signer: signer}
	return a, errors.Join(authority.EnsureKey(a.Path("sa.key")), a.ensureEncryption())
}

// Path returns the path of a file in the authority's folder.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// Serving issues name.crt and name.key for a server with the given hosts, which are DNS names or IP addresses.
func (a *Authority) Serving(name string, hosts ...string) error {
	return a.signer.Issue(a.Path(name+".crt"), a.Path(name+".key"), x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, hosts...)
}

// Client issues name.crt and name.key for a Kubernetes user with groups, and name.kubeconfig, which connects to server
// with them.
func (a *Authority) Client(name, cluster, server, user string, groups ...string) error {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := a.signer.Issue(a.Path(name+".crt"), a.Path(name+".key"), template); err != nil {
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
	return authority.WriteFile(a.Path(name+".kubeconfig"), []byte(kubeconfig), 0o600)
}

// TLS returns the TLS configuration of an issued client for requests to the cluster's servers.
func (a *Authority) TLS(client string) (*tls.Config, error) {
	authorities, err := certfile.LoadRoots(a.Path("ca.crt"))
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(a.Path(client+".crt"), a.Path(client+".key"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: authorities.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
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
