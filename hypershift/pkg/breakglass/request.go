package breakglass

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	maxLifetime = 36 * time.Hour
	minLifetime = 10 * time.Minute
)

// reconcileRequest approves and signs one certificate signing request, or reports why it cannot be signed.
func (o *Operator) reconcileRequest(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	var request certificatesv1.CertificateSigningRequest
	// The key of an approval has a namespace, the key of a request has none.
	if err := o.Management.Get(ctx, client.ObjectKey{Name: key.Name}, &request); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	namespace, class, ok := contract.ParseSignerName(request.Spec.SignerName)
	if !ok || !request.DeletionTimestamp.IsZero() || len(request.Status.Certificate) > 0 ||
		hasCondition(&request, certificatesv1.CertificateDenied) || hasCondition(&request, certificatesv1.CertificateFailed) {
		return 0, nil
	}
	if hcp, err := o.controlPlane(ctx, namespace); err != nil || hcp == nil {
		return 0, err
	}
	if !hasCondition(&request, certificatesv1.CertificateApproved) {
		var approval certificatesv1alpha1.CertificateSigningRequestApproval
		if err := o.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: request.Name}, &approval); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
		return 0, o.approve(ctx, &request)
	}
	return 0, o.sign(ctx, &request, namespace, class)
}

func hasCondition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

func newCondition(kind certificatesv1.RequestConditionType, reason, message string) certificatesv1.CertificateSigningRequestCondition {
	now := metav1.Now()
	return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: now, LastTransitionTime: now}
}

func (o *Operator) approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	next := request.DeepCopy()
	next.Status.Conditions = append(next.Status.Conditions, newCondition(certificatesv1.CertificateApproved, "ApprovalPresent", "The requisite approval resource exists."))
	if err := o.Management.SubResource("approval").Update(ctx, next, fieldManager); err != nil {
		return fmt.Errorf("approving certificate signing request %s: %w", request.Name, err)
	}
	return nil
}

func (o *Operator) sign(ctx context.Context, request *certificatesv1.CertificateSigningRequest, namespace string, class contract.SignerClass) error {
	var secret corev1.Secret
	if err := o.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: class.SignerSecret()}, &secret); err != nil {
		return client.IgnoreNotFound(err) // its creation starts the next pass
	}
	signer, err := pki.ReadAuthority(pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]})
	if err != nil {
		return fmt.Errorf("reading Secret %s/%s: %w", namespace, secret.Name, err)
	}
	next := request.DeepCopy()
	parsed, err := parse(request, class)
	if err == nil {
		next.Status.Certificate, err = signer.SignRequest(parsed, time.Now(), lifetime(request.Spec.ExpirationSeconds))
	}
	if err != nil {
		next.Status.Conditions = append(next.Status.Conditions, newCondition(certificatesv1.CertificateFailed, "SignerValidationFailure", err.Error()))
	}
	if err := o.Management.Status().Update(ctx, next, client.FieldOwner(string(class)+"-certificate-signing-controller")); err != nil {
		return fmt.Errorf("writing the status of certificate signing request %s: %w", request.Name, err)
	}
	o.Log.Info("certificate signing request processed", logkey.Name, request.Name, logkey.ControlPlane, namespace, logkey.Class, string(class),
		logkey.Outcome, next.Status.Conditions[len(next.Status.Conditions)-1].Type)
	return nil
}

func lifetime(requested *int32) time.Duration {
	if requested == nil {
		return maxLifetime
	}
	return max(minLifetime, min(maxLifetime, time.Duration(*requested)*time.Second))
}

// parse parses a request and checks that signers of the class may sign it. It does not check organizations, because the
// creator of the approval decides on them.
func parse(request *certificatesv1.CertificateSigningRequest, class contract.SignerClass) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the request is not a PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("invalid certificate request: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("invalid certificate request: checking its signature: %w", err)
	}
	if !strings.HasPrefix(parsed.Subject.CommonName, class.CommonNamePrefix()) {
		return nil, fmt.Errorf("invalid certificate request: subject common name must begin with %q, not %q", class.CommonNamePrefix(), parsed.Subject.CommonName)
	}
	if len(parsed.DNSNames)+len(parsed.EmailAddresses)+len(parsed.IPAddresses)+len(parsed.URIs) > 0 {
		return nil, errors.New("invalid certificate request: subject alternative names are not allowed")
	}
	if !slices.Contains(request.Spec.Usages, certificatesv1.UsageClientAuth) {
		return nil, errors.New("invalid certificate request: usages must include client auth")
	}
	for _, usage := range request.Spec.Usages {
		switch usage {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return nil, fmt.Errorf("invalid certificate request: usage %q is not allowed", usage)
		}
	}
	return parsed, nil
}
