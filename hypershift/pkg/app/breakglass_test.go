package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// request creates a certificate signing request and its approval, as Cluster Service does, and returns the key.
func (s *sample) request(t testing.TB, name string, class contract.SignerClass, commonName string) *ecdsa.PrivateKey {
	t.Helper()
	return s.requestFor(t, name, class, commonName, "system:masters")
}

// submit creates a certificate signing request, in PEM, and its approval.
func (s *sample) submit(t testing.TB, name string, class contract.SignerClass, request []byte) {
	t.Helper()
	for _, object := range []client.Object{
		&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: class.SignerName(s.controlPlane()), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, ExpirationSeconds: new(int32(86400)),
			Request: request}},
		&certificatesv1alpha1.CertificateSigningRequestApproval{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.controlPlane()}},
	} {
		must.Do(t, s.client.Create(t.Context(), object, workAgent))
	}
	t.Cleanup(func() {
		_ = s.client.Delete(context.Background(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
}

// certificate waits until a request is signed, and returns the certificate with its key.
func (s *sample) certificate(t testing.TB, name string, key *ecdsa.PrivateKey) pki.Pair {
	t.Helper()
	var request certificatesv1.CertificateSigningRequest
	eventually.Soon(t, "request "+name+" is signed", func() error {
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: name}, &request); err != nil {
			return err
		}
		if len(request.Status.Certificate) == 0 {
			return fmt.Errorf("not signed: %v", request.Status.Conditions)
		}
		return nil
	})
	der := must.Get(x509.MarshalECPrivateKey(key))(t)
	return pki.Pair{Cert: request.Status.Certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}

// endpoint returns an anonymous client configuration of the hosted API server.
func (s *sample) endpoint(t testing.TB) *rest.Config {
	t.Helper()
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: contract.AdminKubeconfig(s.name)})
	config := must.Get(clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]))(t)
	return rest.AnonymousClientConfig(config)
}

// whoAmI returns the user that the hosted API server authenticates with the given credentials.
func (s *sample) whoAmI(t testing.TB, use func(*rest.Config)) (authenticationv1.UserInfo, error) {
	t.Helper()
	config := s.endpoint(t)
	use(config)
	c := must.Get(kubernetes.NewForConfig(config))(t)
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// awaitUse waits until the use of a certificate is reported on the HostedCluster.
func (s *sample) awaitUse(t testing.TB, fingerprint string) hostedreport.CredentialUse {
	t.Helper()
	var use hostedreport.CredentialUse
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		text := hc.Annotations[hostedreport.CredentialAnnotation]
		known, is := hostedreport.DecodeCredentials(text)[fingerprint]
		if use = known; !is {
			return fmt.Errorf("certificate %s is not in %q", fingerprint, text)
		}
		return nil
	})
	return use
}

func fingerprintOf(t testing.TB, pair pki.Pair) string {
	t.Helper()
	cert := must.Get(pki.ReadCertificate(pair.Cert))(t)
	return fmt.Sprintf("%x", sha256.Sum256(cert.Raw))
}

func withCertificate(pair pki.Pair) func(*rest.Config) {
	return func(config *rest.Config) { config.CertData, config.KeyData = pair.Cert, pair.Key }
}

// revoke creates a revocation and waits until it is complete. It returns the conditions in the order in which they
// became true.
func (s *sample) revoke(t testing.TB, name string, class contract.SignerClass) []string {
	t.Helper()
	crr := &certificatesv1alpha1.CertificateRevocationRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.controlPlane()},
		Spec: certificatesv1alpha1.CertificateRevocationRequestSpec{SignerClass: string(class)}}
	must.Do(t, s.client.Create(t.Context(), crr, workAgent))
	var order []string
	await(t, s.client, &certificatesv1alpha1.CertificateRevocationRequestList{}, client.ObjectKeyFromObject(crr),
		func(crr *certificatesv1alpha1.CertificateRevocationRequest) error {
			for _, c := range crr.Status.Conditions {
				if c.Status == metav1.ConditionTrue && !slices.Contains(order, c.Type) {
					order = append(order, c.Type)
				}
			}
			if !meta.IsStatusConditionTrue(crr.Status.Conditions, certificatesv1alpha1.PreviousCertificatesRevokedType) {
				return fmt.Errorf("conditions %v", crr.Status.Conditions)
			}
			if crr.Status.RevocationTimestamp == nil || crr.Status.PreviousSigner == nil {
				t.Errorf("status %v", crr.Status)
			}
			return nil
		})
	return order
}

var revocationOrder = []string{"SignerClassValid", "RootCertificatesRegenerated", "NewCertificatesTrusted", "LeafCertificatesRegenerated", "PreviousCertificatesRevoked"}

// testBreakGlass issues and revokes certificates, and checks each time whether the hosted API server accepts them. restart restarts the runtime.
func (s *sample) testBreakGlass(t *testing.T, restart func()) {
	others := len(hostedreport.DecodeCredentials(s.hostedCluster(t).Annotations[hostedreport.CredentialAnnotation]))
	const customerName, sreName = "system:customer-break-glass:system-admin", "system:sre-break-glass:ada"
	began := time.Now()
	customer := s.certificate(t, "customer-1", s.request(t, "customer-1", contract.CustomerBreakGlass, customerName))
	user, err := s.whoAmI(t, withCertificate(customer))
	if err != nil || user.Username != customerName || !slices.Contains(user.Groups, "system:masters") {
		t.Fatalf("the customer is authenticated as %v, %v", user, err)
	}
	t.Logf("a working credential after %s", time.Since(began))
	leaf := must.Get(pki.ReadCertificate(customer.Cert))(t)
	if left := time.Until(leaf.NotAfter); left > 24*time.Hour || left < 24*time.Hour-time.Minute {
		t.Errorf("the certificate is valid for %s, want a day", left)
	}
	sre := s.certificate(t, "sre-1", s.request(t, "sre-1", contract.SREBreakGlass, sreName))
	if user, err := s.whoAmI(t, withCertificate(sre)); err != nil || user.Username != sreName {
		t.Fatalf("the engineer is authenticated as %v, %v", user, err)
	}

	// The use of each certificate is reported by its fingerprint; the control plane's own requests are not.
	for _, holder := range []struct {
		pair pki.Pair
		user string
	}{{customer, customerName}, {sre, sreName}} {
		if use := s.awaitUse(t, fingerprintOf(t, holder.pair)); use.User != holder.user || use.Request != "create selfsubjectreviews.authentication.k8s.io" ||
			!slices.Equal(use.Addresses, []string{"127.0.0.1"}) {
			t.Errorf("the use of the certificate of %s is reported as %+v", holder.user, use)
		}
	}

	// A class signs only its own common names.
	s.request(t, "wrong-name", contract.CustomerBreakGlass, sreName)
	eventually.Soon(t, "a request with a wrong name is marked as failed", func() error {
		var request certificatesv1.CertificateSigningRequest
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: "wrong-name"}, &request); err != nil {
			return err
		}
		for _, c := range request.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed && c.Reason == "SignerValidationFailure" {
				return nil
			}
		}
		return fmt.Errorf("conditions %v, certificate %q", request.Status.Conditions, request.Status.Certificate)
	})

	began = time.Now()
	if order := s.revoke(t, "revocation-1", contract.CustomerBreakGlass); !slices.Equal(order, revocationOrder) {
		t.Errorf("conditions became true in the order %v", order)
	}
	t.Logf("revoked after %s", time.Since(began))
	if user, err := s.whoAmI(t, withCertificate(customer)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a revoked credential is authenticated as %v, %v", user, err)
	}
	if user, err := s.whoAmI(t, withCertificate(sre)); err != nil || user.Username != sreName {
		t.Errorf("the other class's credential is authenticated as %v, %v", user, err)
	}
	again := s.certificate(t, "customer-2", s.request(t, "customer-2", contract.CustomerBreakGlass, customerName))
	if user, err := s.whoAmI(t, withCertificate(again)); err != nil || user.Username != customerName {
		t.Errorf("a credential of the new signer is authenticated as %v, %v", user, err)
	}
	leafSecret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.controlPlane(), Name: contract.CustomerBreakGlass.ClientSecret()})
	own := pki.Pair{Cert: leafSecret.Data[corev1.TLSCertKey], Key: leafSecret.Data[corev1.TLSPrivateKeyKey]}
	if _, err := s.whoAmI(t, withCertificate(own)); err != nil {
		t.Errorf("the class's own client certificate was not renewed: %v", err)
	}

	s.awaitUse(t, fingerprintOf(t, own))
	before := s.awaitUse(t, fingerprintOf(t, again))

	// A restarted runtime finds the same state.
	restart()
	eventually.Soon(t, "the credential is accepted after a restart", func() error { _, err := s.whoAmI(t, withCertificate(again)); return err })
	if after := s.awaitUse(t, fingerprintOf(t, again)); !after.First.Equal(before.First) {
		t.Errorf("after a restart a certificate was first used at %s, before at %s", after.First, before.First)
	}
	if uses := hostedreport.DecodeCredentials(s.hostedCluster(t).Annotations[hostedreport.CredentialAnnotation]); len(uses) != others+4 {
		t.Errorf("reported uses: %+v, want four certificates and %d of other tests", uses, others)
	}
	if _, err := s.whoAmI(t, withCertificate(customer)); !apierrors.IsUnauthorized(err) {
		t.Errorf("after a restart a revoked credential: %v, want it rejected", err)
	}
}

// signer returns the current signer of a class.
func (s *sample) signer(t testing.TB, class contract.SignerClass) *pki.Authority {
	t.Helper()
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.controlPlane(), Name: class.SignerSecret()})
	return must.Get(pki.ReadAuthority(pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}))(t)
}

// TestRequestsDuringRevocation issues certificates while the signer is replaced. When the revocation is complete, all
// certificates of the previous signer are rejected, however late they were issued, and all of the new signer are
// accepted.
func TestRequestsDuringRevocation(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.available(t, "meanwhile")
	var issued []pki.Pair
	next := func() {
		t.Helper()
		name := fmt.Sprintf("meanwhile-%d", len(issued))
		issued = append(issued, s.certificate(t, name, s.request(t, name, contract.CustomerBreakGlass, "system:customer-break-glass:system-admin")))
	}
	next()
	previous := s.signer(t, contract.CustomerBreakGlass)
	crr := &certificatesv1alpha1.CertificateRevocationRequest{ObjectMeta: metav1.ObjectMeta{Name: "meanwhile", Namespace: s.controlPlane()},
		Spec: certificatesv1alpha1.CertificateRevocationRequestSpec{SignerClass: string(contract.CustomerBreakGlass)}}
	must.Do(t, s.client.Create(t.Context(), crr, workAgent))
	eventually.Soon(t, "the previous certificates are revoked", func() error {
		next()
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(crr), crr); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(crr.Status.Conditions, certificatesv1alpha1.PreviousCertificatesRevokedType) {
			return fmt.Errorf("the conditions after %d requests: %v", len(issued), crr.Status.Conditions)
		}
		return nil
	})
	next()
	current := s.signer(t, contract.CustomerBreakGlass)
	ofPrevious := 0
	for n, pair := range issued {
		leaf := must.Get(pki.ReadCertificate(pair.Cert))(t)
		user, err := s.whoAmI(t, withCertificate(pair))
		switch {
		case previous.Signed(leaf):
			ofPrevious++
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("certificate %d of %d, of the previous signer, is authenticated as %v, %v", n, len(issued), user, err)
			}
		case current.Signed(leaf):
			if err != nil {
				t.Errorf("certificate %d of %d, of the new signer, is rejected: %v", n, len(issued), err)
			}
		default:
			t.Errorf("certificate %d of %d is from neither signer", n, len(issued))
		}
	}
	t.Logf("%d certificates of the previous signer, %d of the new one", ofPrevious, len(issued)-ofPrevious)
	s.delete(t)
	s.expectNothingRuns(t)
}

// testReportedBreakGlass issues and revokes certificates of a control plane without an API server.
func testReportedBreakGlass(t *testing.T, m *managementCluster) {
	s := m.available(t, "reported-access")
	var signer corev1.Secret
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: contract.CustomerBreakGlass.SignerSecret()}, &signer); !apierrors.IsNotFound(err) {
		t.Errorf("a control plane in status fidelity has signers before the first request: %v", err)
	}
	before := s.certificate(t, "status-1", s.request(t, "status-1", contract.CustomerBreakGlass, "system:customer-break-glass:system-admin"))
	if order := s.revoke(t, "revocation-1", contract.CustomerBreakGlass); !slices.Equal(order, revocationOrder) {
		t.Errorf("conditions became true in the order %v", order)
	}
	must.Do(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: contract.CustomerBreakGlass.SignerSecret()}, &signer))
	authority := must.Get(pki.ReadAuthority(pki.Pair{Cert: signer.Data[corev1.TLSCertKey], Key: signer.Data[corev1.TLSPrivateKeyKey]}))(t)
	leaf := must.Get(pki.ReadCertificate(before.Cert))(t)
	if authority.Signed(leaf) {
		t.Error("the signer was not replaced")
	}
	s.delete(t)
}
