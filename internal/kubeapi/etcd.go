package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// EtcdTLS names the files with which a client connects to etcd.
type EtcdTLS struct {
	// CAFile verifies the server.
	CAFile string
	// CertificateFile and KeyFile are the client's own.
	CertificateFile, KeyFile string
}

// Arguments returns the arguments of a kube-apiserver that uses the files. It follows their changes.
//
// etcd reports its version only to the user root, so the API server does not know whether etcd reports the progress of watches on request.
// Without that, it reads lists from etcd instead of its cache, and cannot serve streaming lists. Disabled, they are refused with the
// error after which clients list at once.
func (t EtcdTLS) Arguments() []string {
	return []string{
		"--etcd-cafile=" + t.CAFile, "--etcd-certfile=" + t.CertificateFile, "--etcd-keyfile=" + t.KeyFile,
		"--feature-gates=WatchList=false",
	}
}

// Config returns the TLS configuration of a client of etcd.
func (t EtcdTLS) Config() (*tls.Config, error) {
	authorities, err := certfile.LoadRoots(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of etcd: %w", err)
	}
	certificate, err := tls.LoadX509KeyPair(t.CertificateFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate for etcd: %w", err)
	}
	return &tls.Config{RootCAs: authorities.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}, nil
}

// EtcdAuthority issues the certificates of an etcd and of its users, which etcd identifies by the common name. Who has its key can
// become every user. It is apart from other authorities, because etcd verifies every certificate of its authority.
type EtcdAuthority struct {
	dir    string
	signer *authority.Authority
	// ClientCA is the file with the authorities whose client certificates etcd accepts. etcd reads it when it starts. CreateEtcdAuthority
	// sets it to the file of this authority.
	ClientCA string
}

// CreateEtcdAuthority reads the authority in dir, or creates it, and issues etcd's own certificate.
func CreateEtcdAuthority(dir string) (*EtcdAuthority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	signer, err := authority.Open(dir, "etcd")
	if err != nil {
		return nil, err
	}
	a := &EtcdAuthority{dir: dir, signer: signer, ClientCA: filepath.Join(dir, authority.CertificateFile)}
	// etcd uses its certificate as a client too, for its JSON gateway.
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a, signer.Issue(a.path("server.crt"), a.path("server.key"), x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, ExtKeyUsage: usage}, "127.0.0.1", "localhost")
}

// OpenEtcdAuthority reads an authority that CreateEtcdAuthority has created in dir.
func OpenEtcdAuthority(dir string) (*EtcdAuthority, error) {
	for _, name := range []string{authority.CertificateFile, authority.KeyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("reading the authority of etcd: %w", err)
		}
	}
	signer, err := authority.Open(dir, "etcd")
	if err != nil {
		return nil, err
	}
	return &EtcdAuthority{dir: dir, signer: signer}, nil
}

func (a *EtcdAuthority) path(name string) string { return filepath.Join(a.dir, name) }

// ServerArguments returns the arguments of an etcd that accepts only TLS clients with a certificate of the authority.
func (a *EtcdAuthority) ServerArguments() []string {
	return []string{
		"--cert-file=" + a.path("server.crt"), "--key-file=" + a.path("server.key"),
		"--trusted-ca-file=" + a.ClientCA, "--client-cert-auth",
		"--tls-min-version=TLS1.3",
	}
}

// PeerArguments returns the arguments of an etcd that accepts only peers with a certificate of the authority.
func (a *EtcdAuthority) PeerArguments() []string {
	return []string{
		"--peer-cert-file=" + a.path("server.crt"), "--peer-key-file=" + a.path("server.key"),
		"--peer-trusted-ca-file=" + a.ClientCA, "--peer-client-cert-auth",
		// Only etcd's own certificate: with those of users, the port would give access to the state of the cluster.
		"--peer-cert-allowed-cn=etcd",
	}
}

// EtcdFiles returns the files of a user whose certificate the authority in authorityDir has issued into dir.
func EtcdFiles(authorityDir, dir string) EtcdTLS {
	return EtcdTLS{CAFile: filepath.Join(authorityDir, authority.CertificateFile), CertificateFile: filepath.Join(dir, "etcd.crt"), KeyFile: filepath.Join(dir, "etcd.key")}
}

// Issue issues the certificate of a user into dir, as etcd.crt and etcd.key.
func (a *EtcdAuthority) Issue(dir, user string) (EtcdTLS, error) {
	files := EtcdFiles(a.dir, dir)
	template := x509.Certificate{Subject: pkix.Name{CommonName: user}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return files, a.signer.Issue(files.CertificateFile, files.KeyFile, template)
}
