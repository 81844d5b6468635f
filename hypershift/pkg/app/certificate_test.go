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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRenewedCertificateIsServed replaces, as SecretSync does, the Secret with the API server's serving certificate.
// The same process serves the previous certificate until it serves the new one.
func TestRenewedCertificateIsServed(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.sample(t, "renewed")
	s.create(t)
	hc := s.waitCluster(t, available)
	named := hc.Spec.Configuration.APIServer.ServingCerts.NamedCertificates[0]
	host, endpoint := named.Names[0], hc.Status.ControlPlaneEndpoint
	// served returns the certificate that the server presents for the name. The handshake fails without the server's
	// key.
	served := func() ([]byte, error) {
		connection, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
			&tls.Config{ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // the certificate is compared, not verified
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		return connection.ConnectionState().PeerCertificates[0].Raw, nil
	}
	before := must.Get(served())(t)
	pids := s.servers(t)

	issuer := must.Get(pki.NewAuthority("a public authority", time.Now()))(t)
	pair := must.Get(issuer.Server(host, named.Names, time.Now()))(t)
	block, _ := pem.Decode(pair.Cert)
	after := block.Bytes
	chain := append(bytes.Clone(pair.Cert), issuer.Cert...)
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: named.ServingCertificate.Name})
	changed := secret.DeepCopy()
	changed.Data = map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: pair.Key}
	must.Do(t, s.client.Patch(t.Context(), changed, client.MergeFrom(&secret)))
	eventually.Soon(t, "the new certificate is served", func() error {
		now, err := served()
		switch {
		case err != nil:
			t.Fatalf("the server is unreachable during the change of certificates: %v", err)
		case bytes.Equal(now, before):
			return errors.New("the previous certificate is served")
		case !bytes.Equal(now, after):
			t.Fatal("an unknown certificate is served")
		}
		return nil
	})
	if now := s.servers(t); !slices.Equal(now, pids) {
		t.Errorf("the API server restarted: %v, before: %v", now, pids)
	}
	// The services that issue kubeconfigs read the certificate of the server there.
	eventually.Soon(t, "the control plane's namespace has the new certificate", func() error {
		var copied corev1.Secret
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: named.ServingCertificate.Name}, &copied); err != nil {
			return err
		}
		if !bytes.Equal(copied.Data[corev1.TLSCertKey], chain) {
			return errors.New("the control plane's namespace has the previous certificate")
		}
		return nil
	})
	s.delete(t)
	s.expectNothingRuns(t)
}
