package app

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRenewedCertificateIsServed replaces, as a SecretSync does, the Secret beside the HostedCluster that its API server's
// serving certificate comes from: the one before is served until the new one is, by the same process.
func TestRenewedCertificateIsServed(t *testing.T) {
	m := newManagementCluster(t)
	m.start(t, m.options(t.TempDir(), process))
	s := m.sample(t, "renewed")
	s.create(t)
	hc := s.waitCluster(t, time.Minute, available)
	named := hc.Spec.Configuration.APIServer.ServingCerts.NamedCertificates[0]
	host, endpoint := named.Names[0], hc.Status.ControlPlaneEndpoint
	// served is the certificate that a client which asks for the name is shown; the handshake fails without its key.
	served := func() ([]byte, error) {
		connection, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
			&tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // what is served is compared, not trusted
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		return connection.ConnectionState().PeerCertificates[0].Raw, nil
	}
	before, err := served()
	if err != nil {
		t.Fatal(err)
	}
	pids := s.servers(t)

	issuer, err := pki.NewAuthority("a public authority", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issuer.Server(host, named.Names, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	after := block.Bytes
	chain := append(bytes.Clone(pair.Cert), issuer.Cert...)
	var secret corev1.Secret
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: named.ServingCertificate.Name}, &secret); err != nil {
		t.Fatal(err)
	}
	changed := secret.DeepCopy()
	changed.Data = map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: pair.Key}
	if err := s.client.Patch(t.Context(), changed, client.MergeFrom(&secret)); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, 2*time.Minute, "the new certificate is served", func() error {
		now, err := served()
		switch {
		case err != nil:
			t.Fatalf("between the certificates nothing is served: %v", err)
		case bytes.Equal(now, before):
			return errors.New("the certificate before is served")
		case !bytes.Equal(now, after):
			t.Fatal("a certificate is served that is neither")
		}
		return nil
	})
	if now := s.servers(t); !slices.Equal(now, pids) {
		t.Errorf("the API server was started again: %v, %v before", now, pids)
	}
	// Whoever gives out kubeconfigs reads there what clients are to trust.
	eventually.Holds(t, time.Minute, "the control plane's namespace has the new certificate", func() error {
		var copied corev1.Secret
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: named.ServingCertificate.Name}, &copied); err != nil {
			return err
		}
		if !bytes.Equal(copied.Data[corev1.TLSCertKey], chain) {
			return errors.New("the control plane's namespace has the certificate before")
		}
		return nil
	})
	s.delete(t)
	s.expectNothingRuns(t)
}
