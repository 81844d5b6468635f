package breakglass

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
)

// Prober reports whether a control plane accepts a certificate for authentication.
type Prober interface {
	Accepts(ctx context.Context, hcp *hyperv1.HostedControlPlane, pair pki.Pair) (bool, error)
}

// APIProber sends a SelfSubjectReview with the certificate to the hosted API server. For a control plane without an API
// server it reads the bundle that the server would use.
type APIProber struct {
	Management client.Reader
}

// probeTimeout bounds one probe.
const probeTimeout = 10 * time.Second

// Accepts reports whether the API server authenticated the certificate. It returns an error if the response states
// neither.
func (p APIProber) Accepts(ctx context.Context, hcp *hyperv1.HostedControlPlane, pair pki.Pair) (bool, error) {
	fidelity, err := contract.FidelityOf(hcp)
	if err != nil {
		return false, err
	}
	if fidelity == contract.FidelityStatus {
		return p.bundleTrusts(ctx, hcp, pair)
	}
	var root corev1.Secret
	if err := p.Management.Get(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: contract.RootCASecret}, &root); err != nil {
		return false, fmt.Errorf("getting the root CA of the control plane: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root.Data["ca.crt"]) {
		return false, errors.New("the root CA of the control plane contains no certificate")
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return false, err
	}
	endpoint := hcp.Status.ControlPlaneEndpoint
	if endpoint.Port == 0 {
		return false, errors.New("the API server has no endpoint yet")
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "kube-apiserver", MinVersion: tls.VersionTLS12,
		// With the field Certificates, the client would not send the certificate to a server that does not name its
		// issuer, and the server would see an anonymous user.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	url := "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))) + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false, fmt.Errorf("probing the API server: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	switch response.StatusCode {
	case http.StatusCreated:
		return true, nil
	case http.StatusUnauthorized:
		return false, nil
	}
	return false, fmt.Errorf("probing the API server: unexpected status %s", response.Status)
}

func (p APIProber) bundleTrusts(ctx context.Context, hcp *hyperv1.HostedControlPlane, pair pki.Pair) (bool, error) {
	cert, err := pki.ReadCertificate(pair.Cert)
	if err != nil {
		return false, err
	}
	var bundle corev1.ConfigMap
	if err := p.Management.Get(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: contract.ClientCAConfigMap}, &bundle); err != nil {
		return false, fmt.Errorf("getting the bundle of client authorities: %w", err)
	}
	certs, err := pki.ReadCertificates([]byte(bundle.Data[contract.CABundleKey]))
	return err == nil && containsCertificate(certs, cert), err
}
