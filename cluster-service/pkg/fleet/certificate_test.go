package fleet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// issued is the content of a certificate and of its issuer.
type issued struct {
	issuer   string
	template x509.Certificate
}

// newIssued returns the certificate that the control plane of these tests issues for the request of signed.
func newIssued(notAfter time.Time) *issued {
	return &issued{"ocm-test-" + fleet.ClusterID(clusterUID) + "-p_customer-system-admin-signer@1", x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: requestedSubject, NotBefore: start, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}}
}

var requestedSubject = pkix.Name{CommonName: "system:customer-break-glass:x", Organization: []string{"system:masters"}}

// sign signs the certificate for a key.
func (i *issued) sign(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &i.template, &x509.Certificate{Subject: pkix.Name{CommonName: i.issuer}}, key.Public(), newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRequest(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: requestedSubject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))
}

// signed returns a certificate signing request and a certificate, for the same key or for different keys.
func signed(t *testing.T, same bool, notAfter time.Time) (request, certificate string) {
	t.Helper()
	key := newKey(t)
	request = newRequest(t, key)
	if !same {
		key = newKey(t)
	}
	return request, newIssued(notAfter).sign(t, key)
}

// TestReportedCertificatesAreChecked changes one property of a certificate that an agent reports.
func TestReportedCertificatesAreChecked(t *testing.T) {
	const uid = "c1"
	key := newKey(t)
	request := newRequest(t, key)
	tests := map[string]struct {
		change func(*issued)
		// field is in the message; empty if the certificate is accepted.
		field string
	}{
		"as requested":         {func(*issued) {}, ""},
		"slow clock":           {func(i *issued) { i.template.NotAfter = start.Add(time.Hour + 4*time.Minute) }, ""},
		"not PEM":              {nil, "certificate:"},
		"another namespace":    {func(i *issued) { i.issuer = "ocm-test-other-p_customer-system-admin-signer@1" }, "certificate.issuer.commonName:"},
		"another class":        {func(i *issued) { i.issuer = strings.Replace(i.issuer, "_customer", "_sre", 1) }, "certificate.issuer.commonName:"},
		"another signer":       {func(i *issued) { i.issuer = "root-ca" }, "certificate.issuer.commonName:"},
		"another name":         {func(i *issued) { i.template.Subject.CommonName = "system:admin" }, "certificate.subject.commonName:"},
		"further organization": {func(i *issued) { i.template.Subject.Organization = []string{"system:masters", "system:nodes"} }, "certificate.subject.organization:"},
		"no organization":      {func(i *issued) { i.template.Subject.Organization = nil }, "certificate.subject.organization:"},
		"authority":            {func(i *issued) { i.template.IsCA, i.template.BasicConstraintsValid = true, true }, "certificate.isCA:"},
		"signs certificates":   {func(i *issued) { i.template.KeyUsage |= x509.KeyUsageCertSign }, "certificate.isCA:"},
		"alternative name":     {func(i *issued) { i.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, "certificate.subjectAltName:"},
		"server":               {func(i *issued) { i.template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "certificate.extKeyUsage:"},
		"client and server": {func(i *issued) { i.template.ExtKeyUsage = append(i.template.ExtKeyUsage, x509.ExtKeyUsageServerAuth) },
			"certificate.extKeyUsage:"},
		"any purpose": {func(i *issued) { i.template.ExtKeyUsage = nil }, "certificate.extKeyUsage:"},
		"longer":      {func(i *issued) { i.template.NotAfter = start.Add(time.Hour + 6*time.Minute) }, "certificate.notAfter:"},
		"not yet":     {func(i *issued) { i.template.NotBefore = start.Add(6 * time.Minute) }, "certificate.notBefore:"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := "not a certificate"
			if tc.change != nil {
				certificate := newIssued(start.Add(time.Hour))
				tc.change(certificate)
				text = certificate.sign(t, key)
			}
			aggregate := placed(t)
			observe(aggregate.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Completed"))
			aggregate.Credentials = []*fleet.Credential{{UID: uid,
				Spec:   &csv1.BreakGlassCredentialSpec{Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, CertificateSigningRequest: request, Lifetime: durationpb.New(time.Hour)},
				Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}}
			settle(t, aggregate, nil)
			report := applied("")
			report.Certificate, report.ServingCA = text, "ca"
			observe(aggregate.Work(fleet.CredentialWork, uid), report)
			settle(t, aggregate, nil)
			credential := aggregate.Credentials[0]
			want, reason, message := csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, "Signed", ""
			if tc.field != "" {
				want, reason, message = csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED, "WrongCertificate", tc.field
			}
			found := false
			for _, condition := range credential.Status.GetConditions() {
				if condition.GetType() == "Issued" {
					found = condition.GetReason() == reason && strings.HasPrefix(condition.GetMessage(), message)
				}
			}
			if credential.State() != want || !found {
				t.Errorf("%s %v, want %s with reason %s about %q", credential.State(), credential.Status.GetConditions(), want, reason, message)
			}
			if tc.field != "" && credential.Status.GetCertificate() != "" {
				t.Error("the refused certificate is returned")
			}
		})
	}
}
