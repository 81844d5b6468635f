package fleet

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// maxClockDifference is the accepted difference between the clocks of Cluster Service and of a management cluster.
const maxClockDifference = 5 * time.Minute

// DefaultLifetime is the lifetime of a certificate whose request names none. It is also the longest lifetime.
const DefaultLifetime = 24 * time.Hour

// checkCertificate checks a certificate that an agent reports for a credential, and returns its expiry. The certificate must be of the
// signer of the credential's class in the cluster's control plane, for the key and the subject of the request, a client certificate and
// nothing more, and not valid longer than requested. An error names the field of the certificate.
//
// The name of the signer identifies it. Its signature is not verified, because only the same agent could report the signer's own
// certificate.
func checkCertificate(now time.Time, cluster *Cluster, c *Credential, text string) (time.Time, error) {
	certificate, request, err := parseIssued(text, c.Spec.GetCertificateSigningRequest())
	if err != nil {
		return time.Time{}, err
	}
	if err := checkSigner(certificate.Issuer.CommonName, cluster, c.Spec.GetClass()); err != nil {
		return time.Time{}, err
	}
	got, want := certificate.Subject, request.Subject
	if got.CommonName != want.CommonName {
		return time.Time{}, fmt.Errorf("certificate.subject.commonName: %q is not %q, which was requested", got.CommonName, want.CommonName)
	}
	if !slices.Equal(slices.Sorted(slices.Values(got.Organization)), slices.Sorted(slices.Values(want.Organization))) {
		return time.Time{}, fmt.Errorf("certificate.subject.organization: %q are not %q, which were requested", got.Organization, want.Organization)
	}
	if err := checkUsage(certificate); err != nil {
		return time.Time{}, err
	}
	lifetime := DefaultLifetime
	if requested := c.Spec.GetLifetime(); requested != nil {
		lifetime = requested.AsDuration()
	}
	if latest := now.Add(lifetime + maxClockDifference); certificate.NotAfter.After(latest) {
		return time.Time{}, fmt.Errorf("certificate.notAfter: %s is later than the requested lifetime of %s allows", certificate.NotAfter.Format(time.RFC3339), lifetime)
	}
	if certificate.NotBefore.After(now.Add(maxClockDifference)) {
		return time.Time{}, fmt.Errorf("certificate.notBefore: %s is in the future", certificate.NotBefore.Format(time.RFC3339))
	}
	return certificate.NotAfter, nil
}

// parseIssued parses a certificate and the request for it, and checks that both have the same key.
func parseIssued(text, requestText string) (*x509.Certificate, *x509.CertificateRequest, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("certificate: is not a PEM block of type CERTIFICATE")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	request, err := ParseRequest(requestText)
	if err != nil {
		return nil, nil, err
	}
	key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !key.Equal(certificate.PublicKey) {
		return nil, nil, errors.New("certificate.publicKey: is another key than the request's")
	}
	return certificate, request, nil
}

// checkSigner checks the name of a signer, `<namespace of the control plane>_<Secret of the class>@<time>`, as HyperShift's operator of
// control planes generates it.
func checkSigner(name string, cluster *Cluster, class csv1.BreakGlassClass) error {
	signer, err := SignerClass(class)
	if err != nil {
		return err
	}
	secret := strings.TrimSuffix(signer, "-break-glass") + "-system-admin-signer"
	// The namespace without its environment.
	controlPlane := strings.TrimPrefix(ControlPlaneNamespace("", cluster), "ocm-")
	namespace, rest, _ := strings.Cut(name, "_")
	if !strings.HasSuffix(namespace, controlPlane) || !strings.HasPrefix(rest, secret+"@") {
		return fmt.Errorf("certificate.issuer.commonName: %q is not the signer %s of the control plane", name, secret)
	}
	return nil
}

// checkUsage checks that a certificate identifies a client and is good for nothing else.
func checkUsage(certificate *x509.Certificate) error {
	switch {
	case certificate.IsCA || certificate.KeyUsage&x509.KeyUsageCertSign != 0:
		return errors.New("certificate.isCA: must not be an authority")
	case len(certificate.DNSNames)+len(certificate.EmailAddresses)+len(certificate.IPAddresses)+len(certificate.URIs) > 0:
		return errors.New("certificate.subjectAltName: must have no alternative names")
	case !slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(certificate.UnknownExtKeyUsage) > 0:
		return errors.New("certificate.extKeyUsage: must be exactly client authentication")
	}
	return nil
}
