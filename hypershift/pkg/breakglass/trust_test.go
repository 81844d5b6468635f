package breakglass

import (
	"context"
	"log/slog"
	"testing"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
)

// interrupted is a client that calls another controller after it has read a ConfigMap, before the next request for it.
type interrupted struct {
	client.Client
	read bool
	call func() // nil if there is none, or it was called
}

func (c *interrupted) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	c.interrupt(object)
	return c.Client.Get(ctx, key, object, opts...)
}

func (c *interrupted) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	c.interrupt(object)
	return c.Client.Update(ctx, object, opts...)
}

func (c *interrupted) interrupt(object client.Object) {
	if _, isConfigMap := object.(*corev1.ConfigMap); !isConfigMap || c.call == nil {
		return
	}
	if !c.read {
		c.read = true
		return
	}
	call := c.call
	c.call = nil
	call()
}

// TestRevokedSignerDoesNotReturn is a regression test. The controller of signers read the trusted authorities of a class, the controller
// of revocations removed the revoked signer, and the first one then wrote the authorities that it had read. The API server continued to
// accept the revoked signer, and the revocation did not end.
func TestRevokedSignerDoesNotReturn(t *testing.T) {
	t.Parallel()
	const class = contract.CustomerBreakGlass
	restConfig, err := clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := contract.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	management, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	hcp := &hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ocm-local-revoked", Name: "revoked", UID: "c8f8c1f0-6f7e-4a52-9e44-1f3f0f6c2d11"}}
	if err := management.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hcp.Namespace}}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signer := func(name string, created time.Time) *pki.Authority {
		t.Helper()
		authority, err := pki.NewSigner(name, created, signerLifetime)
		if err != nil {
			t.Fatal(err)
		}
		return authority
	}
	previous, current := signer("previous", now.Add(-time.Hour)), signer("current", now)
	cached := &interrupted{Client: management}
	operator := &Operator{Management: readyourwrites.New(cached, management), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, authority := range []*pki.Authority{previous, current} {
		if _, err := operator.ensureTrust(t.Context(), hcp, class, authority, now); err != nil {
			t.Fatal(err)
		}
	}

	revoking := &revocation{Operator: operator, hcp: hcp, class: class, crr: &certificatesv1alpha1.CertificateRevocationRequest{
		Status: certificatesv1alpha1.CertificateRevocationRequestStatus{RevocationTimestamp: &metav1.Time{Time: now.Add(-time.Minute)}}}}
	cached.call = func() {
		if err := revoking.pruneTrust(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := operator.ensureTrust(t.Context(), hcp, class, signer("renewed", now.Add(time.Minute)), now); !apierrors.IsConflict(err) {
		t.Errorf("writing what was read before the removal: %v, want a conflict", err)
	}

	trust, err := operator.readBundle(t.Context(), hcp, class.TrustConfigMap())
	if err != nil {
		t.Fatal(err)
	}
	certs, err := trust.certificates()
	if err != nil {
		t.Fatal(err)
	}
	if containsCertificate(certs, previous.Certificate()) {
		t.Error("the trusted authorities contain the revoked signer")
	}
	if !containsCertificate(certs, current.Certificate()) {
		t.Error("the trusted authorities lack the current signer")
	}
}
