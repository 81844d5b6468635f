package kubeapi

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// EgressTLS names the files with which an API server connects to the egress proxy. It reads them when it starts.
type EgressTLS struct {
	// CAFile verifies the proxy.
	CAFile string
	// CertificateFile and KeyFile are the API server's own.
	CertificateFile, KeyFile string
}

// EgressAuthority issues the certificates of an egress proxy and of the control planes that use it. The proxy identifies a control
// plane by the common name. The authority is apart from others, so that no other certificate is one of a control plane.
type EgressAuthority struct {
	dir    string
	signer *authority.Authority
}

// The names of the proxy's certificate and key in the authority's folder.
const (
	egressCertificate = "server.crt"
	egressKey         = "server.key"
)

// CreateEgressAuthority reads the authority in dir, or creates it, and issues the proxy's own certificate for 127.0.0.1.
func CreateEgressAuthority(dir string) (*EgressAuthority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	signer, err := authority.Open(dir, "egress")
	if err != nil {
		return nil, err
	}
	a := &EgressAuthority{dir, signer}
	server := x509.Certificate{Subject: pkix.Name{CommonName: "egress-proxy"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	return a, signer.Issue(a.CertificateFile(), a.KeyFile(), server, "127.0.0.1")
}

// OpenEgressAuthority reads an authority that CreateEgressAuthority has created in dir.
func OpenEgressAuthority(dir string) (*EgressAuthority, error) {
	for _, name := range []string{authority.CertificateFile, authority.KeyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("reading the authority of the egress proxy: %w", err)
		}
	}
	signer, err := authority.Open(dir, "egress")
	if err != nil {
		return nil, err
	}
	return &EgressAuthority{dir, signer}, nil
}

// CAFile, CertificateFile and KeyFile are the proxy's own files.
func (a *EgressAuthority) CAFile() string          { return filepath.Join(a.dir, authority.CertificateFile) }
func (a *EgressAuthority) CertificateFile() string { return filepath.Join(a.dir, egressCertificate) }
func (a *EgressAuthority) KeyFile() string         { return filepath.Join(a.dir, egressKey) }

// Issue issues the certificate of a control plane into dir, as egress.crt and egress.key.
func (a *EgressAuthority) Issue(dir, controlPlane string) (EgressTLS, error) {
	files := EgressTLS{CAFile: a.CAFile(), CertificateFile: filepath.Join(dir, "egress.crt"), KeyFile: filepath.Join(dir, "egress.key")}
	template := x509.Certificate{Subject: pkix.Name{CommonName: controlPlane}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return files, a.signer.Issue(files.CertificateFile, files.KeyFile, template)
}

// Selection returns the egress selector configuration of an API server, which sends the connections of the selection controlplane
// through the proxy at an https URL. These are connections to token issuers whose configuration selects it, and to the webhooks of the
// cluster that have a URL.
func (t EgressTLS) Selection(proxy string) ([]byte, error) {
	type object = map[string]any
	return json.Marshal(object{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []object{{"name": EgressSelectorControlPlane, "connection": object{
			"proxyProtocol": "HTTPConnect",
			"transport":     object{"tcp": object{"url": proxy, "tlsConfig": object{"caBundle": t.CAFile, "clientCert": t.CertificateFile, "clientKey": t.KeyFile}}},
		}}},
	})
}

// EgressSelectorControlPlane is the egress selection of token issuers in the structured authentication configuration.
const EgressSelectorControlPlane = "controlplane"

// EgressServerTLS returns the TLS configuration of an egress proxy. It accepts only clients with a certificate of the authorities in
// clientCAFile. The files may be replaced while the proxy runs.
func EgressServerTLS(certificateFile, keyFile, clientCAFile string) (*tls.Config, error) {
	own, err := certfile.LoadPair(certificateFile, keyFile)
	if err != nil {
		return nil, err
	}
	clients, err := certfile.LoadRoots(clientCAFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{*own.Certificate()},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool()}, nil
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.Certificate(), nil },
	}, nil
}
