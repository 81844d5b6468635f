package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

const ada, bob = "system:sre-break-glass:ada", "system:sre-break-glass:bob"

// testReaderOnlyReads uses certificates of the level reader at a real hosted API server: they get and list, and neither write, nor
// execute, nor read Secrets. Their use is reported.
func (s *sample) testReaderOnlyReads(t *testing.T) {
	pair := s.certificate(t, "reader-1", s.requestFor(t, "reader-1", contract.SREBreakGlass, ada, hostedclient.ReaderGroup))
	user, err := s.whoAmI(t, withCertificate(pair))
	if err != nil || user.Username != ada || !slices.Contains(user.Groups, hostedclient.ReaderGroup) || slices.Contains(user.Groups, "system:masters") {
		t.Fatalf("the reader is authenticated as %v, %v", user, err)
	}
	if use := s.awaitUse(t, fingerprintOf(t, pair)); use.User != ada {
		t.Errorf("the use of the reader's certificate is reported as %+v", use)
	}
	config := s.endpoint(t)
	withCertificate(pair)(config)
	hosted := must.Get(kubernetes.NewForConfig(config))(t)
	ctx := t.Context()
	core := hosted.CoreV1()
	for what, read := range map[string]func() error{
		"get a namespace":   func() error { _, err := core.Namespaces().Get(ctx, "default", metav1.GetOptions{}); return err },
		"list nodes":        func() error { _, err := core.Nodes().List(ctx, metav1.ListOptions{}); return err },
		"list pods":         func() error { _, err := core.Pods("").List(ctx, metav1.ListOptions{}); return err },
		"list ConfigMaps":   func() error { _, err := core.ConfigMaps("").List(ctx, metav1.ListOptions{}); return err },
		"list deployments":  func() error { _, err := hosted.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); return err },
		"list ClusterRoles": func() error { _, err := hosted.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{}); return err },
		"get /metrics":      func() error { return hosted.RESTClient().Get().AbsPath("/metrics").Do(ctx).Error() },
	} {
		if err := read(); err != nil {
			t.Errorf("a reader cannot %s: %v", what, err)
		}
	}
	for what, try := range map[string]func() error{
		"list Secrets": func() error { _, err := core.Secrets("").List(ctx, metav1.ListOptions{}); return err },
		"get a Secret": func() error { _, err := core.Secrets("kube-system").Get(ctx, "any", metav1.GetOptions{}); return err },
		"create a ConfigMap": func() error {
			_, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}}, metav1.CreateOptions{})
			return err
		},
		"delete a namespace": func() error { return core.Namespaces().Delete(ctx, "default", metav1.DeleteOptions{}) },
		"change the binding": func() error {
			return hosted.RbacV1().ClusterRoleBindings().Delete(ctx, hostedclient.ReaderBinding, metav1.DeleteOptions{})
		},
		"execute in a pod": func() error {
			return core.RESTClient().Post().Namespace("default").Resource("pods").Name("any").SubResource("exec").Param("command", "true").Do(ctx).Error()
		},
		"get a token": func() error {
			return core.RESTClient().Post().Namespace("default").Resource("serviceaccounts").Name("default").SubResource("token").Body([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`)).Do(ctx).Error()
		},
		"impersonate": func() error {
			return core.RESTClient().Get().Resource("nodes").SetHeader("Impersonate-User", "system:admin").Do(ctx).Error()
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("a reader can %s, or is refused for another reason: %v", what, err)
		}
	}
	for _, denied := range []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "pods", Subresource: "exec"}, {Verb: "create", Resource: "pods", Subresource: "portforward"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy"}, {Verb: "get", Resource: "services", Subresource: "proxy"}, {Verb: "approve", Group: "certificates.k8s.io", Resource: "signers"}} {
		review, err := hosted.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &denied}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			t.Errorf("a reader may %s %s/%s: %v", denied.Verb, denied.Resource, denied.Subresource, err)
		}
	}
}

// requestFor is request with the organization of a level.
func (s *sample) requestFor(t testing.TB, name string, class contract.SignerClass, commonName, organization string) *ecdsa.PrivateKey {
	t.Helper()
	key, request := signingRequest(t, commonName, organization)
	s.submit(t, name, class, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	return key
}

// signingRequest returns a key and a request for it in DER.
func signingRequest(t testing.TB, commonName, organization string) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: []string{organization}}}, key))(t)
	return key, der
}

// TestRevokedAccessEndsWithItsCertificate shows at a real hosted API server how the access of one engineer ends: a certificate that
// is not renewed is rejected from its end on, also on a connection that is open, while another engineer's works.
func TestRevokedAccessEndsWithItsCertificate(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.available(t, "one-ends")
	others := s.certificate(t, "bob-1", s.requestFor(t, "bob-1", contract.SREBreakGlass, bob, "system:masters"))

	key, der := signingRequest(t, ada, "system:masters")
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER := must.Get(x509.MarshalECPrivateKey(key))(t)
	// The operator signs for 10 minutes at least. Its signer certifies the same request for seconds: for longer if the certificate ended before
	// its first use.
	signer := s.signer(t, contract.SREBreakGlass)
	var leaf *x509.Certificate
	var open kubernetes.Interface
	list := func() error {
		_, err := open.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		return err
	}
	for lifetime := 2 * time.Second; ; lifetime *= 2 {
		certificate, err := signer.SignRequest(request, time.Now(), lifetime)
		if err != nil {
			t.Fatal(err)
		}
		leaf = must.Get(pki.ReadCertificate(certificate))(t)
		config := s.endpoint(t)
		withCertificate(pki.Pair{Cert: certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})})(config)
		open = must.Get(kubernetes.NewForConfig(config))(t)
		if err = list(); err == nil {
			break
		}
		if time.Now().Before(leaf.NotAfter) {
			t.Fatalf("the certificate of ada, valid until %s: %v", leaf.NotAfter, err)
		}
	}
	eventually.Soon(t, "the certificate of ada ends", func() error {
		began := time.Now()
		if err = list(); err != nil {
			return nil
		}
		if began.After(leaf.NotAfter) {
			t.Fatal("the API server accepts an expired certificate on an open connection")
		}
		return fmt.Errorf("the API server accepts it until %s", leaf.NotAfter)
	})
	if now := time.Now(); !apierrors.IsUnauthorized(err) || now.Before(leaf.NotAfter) {
		t.Errorf("at %s, for the certificate that ends at %s: %v", now, leaf.NotAfter, err)
	}
	if user, err := s.whoAmI(t, withCertificate(others)); err != nil || user.Username != bob {
		t.Errorf("the other engineer is authenticated as %v, %v", user, err)
	}
	s.delete(t)
	s.expectNothingRuns(t)
}
