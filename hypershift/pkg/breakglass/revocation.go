package breakglass

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/big"
	"slices"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// probeInterval is the interval of probes whether a server has loaded its new bundle, for which there is no event.
	probeInterval = 250 * time.Millisecond
	// verificationTimeout is the time after which a previous signer that is still accepted is not verified any more.
	verificationTimeout = 10 * time.Minute
)

// Reasons of conditions for which the API has no constants.
const (
	reasonAsExpected          = hyperv1.AsExpectedReason
	reasonWaiting             = hyperv1.WaitingForAvailableReason
	reasonVerificationTimeout = "RevocationVerificationTimeout"
)

// reconcileRevocation makes one pass over a revocation: it performs the first incomplete step and writes the progress.
// All conditions are written together.
func (o *Operator) reconcileRevocation(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	var crr certificatesv1alpha1.CertificateRevocationRequest
	if err := o.Management.Get(ctx, key, &crr); err != nil || !crr.DeletionTimestamp.IsZero() {
		return 0, client.IgnoreNotFound(err)
	}
	hcp, err := o.controlPlane(ctx, crr.Namespace)
	if err != nil || hcp == nil {
		return 0, err
	}
	valid := meta.FindStatusCondition(crr.Status.Conditions, certificatesv1alpha1.SignerClassValidType)
	if valid != nil && valid.Status == metav1.ConditionFalse || meta.IsStatusConditionTrue(crr.Status.Conditions, certificatesv1alpha1.PreviousCertificatesRevokedType) {
		return 0, nil
	}
	v := &revocation{Operator: o, hcp: hcp, crr: crr.DeepCopy(), class: contract.SignerClass(crr.Spec.SignerClass), now: time.Now()}
	wait, err := v.advance(ctx)
	if err != nil {
		return 0, err
	}
	if equality.Semantic.DeepEqual(crr.Status, v.crr.Status) {
		return wait, nil
	}
	if err := o.Management.Status().Update(ctx, v.crr, fieldManager); err != nil {
		return 0, fmt.Errorf("writing the status of revocation %s: %w", crr.Name, err)
	}
	for _, c := range v.crr.Status.Conditions {
		if c.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(crr.Status.Conditions, c.Type) {
			o.Log.Info("revocation progressed", logkey.Name, crr.Name, logkey.ControlPlane, crr.Namespace, logkey.Class, string(v.class), logkey.Condition, c.Type)
		}
	}
	return wait, nil
}

// revocation is one pass over a CertificateRevocationRequest.
type revocation struct {
	*Operator
	hcp   *hyperv1.HostedControlPlane
	crr   *certificatesv1alpha1.CertificateRevocationRequest
	class contract.SignerClass
	now   time.Time
}

func (v *revocation) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&v.crr.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(v.now), ObservedGeneration: v.crr.Generation})
}

func (v *revocation) setTrue(kind, message string) {
	v.set(kind, metav1.ConditionTrue, reasonAsExpected, message)
}

func (v *revocation) setFalse(kind, reason, message string) {
	v.set(kind, metav1.ConditionFalse, reason, message)
}

func (v *revocation) isTrue(kind string) bool {
	return meta.IsStatusConditionTrue(v.crr.Status.Conditions, kind)
}

// revoked reports whether a certificate is revoked: it began at or before the second of the revocation. Newer ones
// begin in a later second.
func (v *revocation) revoked(cert *x509.Certificate) bool {
	return !cert.NotBefore.After(v.crr.Status.RevocationTimestamp.Time)
}

// advance performs the steps up to the first one that has to wait. It returns the time until the next pass if no event
// starts one.
func (v *revocation) advance(ctx context.Context) (time.Duration, error) {
	if !slices.Contains(contract.SignerClasses(), v.class) {
		v.setFalse(certificatesv1alpha1.SignerClassValidType, certificatesv1alpha1.SignerClassUnknownReason, fmt.Sprintf("Signer class %q unknown.", v.class))
		return 0, nil
	}
	v.setTrue(certificatesv1alpha1.SignerClassValidType, fmt.Sprintf("Signer class %q known.", v.class))
	if v.crr.Status.RevocationTimestamp == nil {
		// The timestamp is written before any other change, so that a later pass knows which certificates are revoked.
		v.crr.Status.RevocationTimestamp = &metav1.Time{Time: v.now.Truncate(time.Second)}
		v.setFalse(certificatesv1alpha1.RootCertificatesRegeneratedType, certificatesv1alpha1.RootCertificatesStaleReason, "The signer has to be replaced.")
		return time.Millisecond, nil
	}
	previous, err := v.savePreviousSigner(ctx)
	if err != nil || previous == nil {
		return v.untilDistinguishable(), err
	}
	signer, err := v.replaceSigner(ctx)
	if err != nil || signer == nil {
		return v.untilDistinguishable(), err
	}
	v.setTrue(certificatesv1alpha1.RootCertificatesRegeneratedType, "The signer was replaced.")
	if !v.isTrue(certificatesv1alpha1.NewCertificatesTrustedType) {
		if wait, err := v.awaitTrust(ctx, signer, previous); err != nil || wait > 0 {
			return wait, err
		}
		v.setTrue(certificatesv1alpha1.NewCertificatesTrustedType, "The API server accepts the new signer.")
	}
	if !v.isTrue(certificatesv1alpha1.LeafCertificatesRegeneratedType) {
		if done, err := v.replaceLeaf(ctx, signer); err != nil || !done {
			return 0, err
		}
		v.setTrue(certificatesv1alpha1.LeafCertificatesRegeneratedType, "No client certificate depends on the previous signer.")
	}
	// Every pass removes the previous signer, because another client may have added it again since the last one.
	if err := v.pruneTrust(ctx); err != nil {
		return 0, err
	}
	return v.awaitRefusal(ctx, signer, previous)
}

// untilDistinguishable returns the time until the beginning of a new certificate differs from the revoked ones.
func (v *revocation) untilDistinguishable() time.Duration {
	return max(0, v.crr.Status.RevocationTimestamp.Add(time.Second).Sub(v.now))
}

// previousName returns the name of the secret that holds the revoked signer until its rejection is verified.
func (v *revocation) previousName() string {
	sum := sha256.Sum224([]byte(v.crr.Name))
	return new(big.Int).SetBytes(sum[:]).Text(36)
}

func (v *revocation) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := v.Management.Get(ctx, client.ObjectKey{Namespace: v.hcp.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return &secret, nil
}

func pairOf(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// savePreviousSigner copies the signer before it is replaced. It returns nil while there is no signer.
func (v *revocation) savePreviousSigner(ctx context.Context) (*pki.Authority, error) {
	kept, err := v.secret(ctx, v.previousName())
	if err != nil {
		return nil, err
	}
	if kept == nil {
		signer, err := v.secret(ctx, v.class.SignerSecret())
		if err != nil || signer == nil {
			return nil, err
		}
		kept = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: v.hcp.Namespace, Name: v.previousName(), OwnerReferences: []metav1.OwnerReference{{
				APIVersion: certificatesv1alpha1.SchemeGroupVersion.String(), Kind: "CertificateRevocationRequest", Name: v.crr.Name, UID: v.crr.UID}}},
			Type: signer.Type, Data: signer.Data,
		}
		if err := v.Management.Create(ctx, kept, fieldManager); err != nil {
			return nil, fmt.Errorf("copying the previous signer: %w", err)
		}
	}
	v.crr.Status.PreviousSigner = &corev1.LocalObjectReference{Name: kept.Name}
	return pki.ReadAuthority(pairOf(kept))
}

// replaceSigner requests a new signer and returns it. It returns nil until the new signer exists.
func (v *revocation) replaceSigner(ctx context.Context) (*pki.Authority, error) {
	secret, err := v.secret(ctx, v.class.SignerSecret())
	if err != nil || secret == nil {
		return nil, err
	}
	signer, err := pki.ReadAuthority(pairOf(secret))
	if err != nil {
		return nil, err
	}
	if !v.revoked(signer.Certificate()) {
		return signer, nil
	}
	v.setFalse(certificatesv1alpha1.RootCertificatesRegeneratedType, certificatesv1alpha1.RootCertificatesStaleReason, "The signer has to be replaced.")
	// A signer that begins in the second of the revocation would have to be replaced again.
	if v.untilDistinguishable() > 0 {
		return nil, nil
	}
	return nil, v.regenerate(ctx, secret)
}

// regenerate requests a new certificate in a secret.
func (v *revocation) regenerate(ctx context.Context, secret *corev1.Secret) error {
	if secret.Annotations[contract.NotAfterAnnotation] == contract.ForceRegeneration {
		return nil
	}
	next := secret.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[contract.NotAfterAnnotation] = contract.ForceRegeneration
	if err := v.Management.Update(ctx, next, fieldManager); err != nil {
		return fmt.Errorf("requesting a new certificate in Secret %s: %w", secret.Name, err)
	}
	return nil
}

// awaitTrust waits until the server accepts the new signer, and verifies that it still accepts the previous one, so
// that clients are not disconnected before they can change over.
func (v *revocation) awaitTrust(ctx context.Context, signer, previous *pki.Authority) (time.Duration, error) {
	const kind = certificatesv1alpha1.NewCertificatesTrustedType
	total, err := v.published(ctx)
	if err != nil {
		return 0, err
	}
	if !containsCertificate(total, signer.Certificate()) {
		v.setFalse(kind, reasonWaiting, "Waiting for the new signer to be in the bundle of client authorities.")
		return probeInterval, nil
	}
	accepted, err := v.Probe.Accepts(ctx, v.hcp, signer.Pair)
	if err != nil || !accepted {
		v.setFalse(kind, reasonWaiting, "Waiting for the API server to accept the new signer."+reasonSuffix(err))
		return probeInterval, nil
	}
	if accepted, err = v.Probe.Accepts(ctx, v.hcp, previous.Pair); err != nil || !accepted {
		v.setFalse(kind, reasonWaiting, "Waiting for the API server to accept the previous signer as well as the new one."+reasonSuffix(err))
		// A signer that has expired or is no longer in the bundle is never accepted again, so do not wait for it.
		if err == nil && (v.now.After(previous.Certificate().NotAfter) || !containsCertificate(total, previous.Certificate())) {
			return 0, nil
		}
		return probeInterval, nil
	}
	return 0, nil
}

func reasonSuffix(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// replaceLeaf requests a new client certificate of the class if the new signer did not sign the current one.
func (v *revocation) replaceLeaf(ctx context.Context, signer *pki.Authority) (done bool, err error) {
	secret, err := v.secret(ctx, v.class.ClientSecret())
	if err != nil || secret == nil {
		return false, err
	}
	leaf, err := pki.ReadCertificate(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return false, fmt.Errorf("reading Secret %s: %w", secret.Name, err)
	}
	if signer.Signed(leaf) {
		return true, nil
	}
	v.setFalse(certificatesv1alpha1.LeafCertificatesRegeneratedType, certificatesv1alpha1.LeafCertificatesStaleReason,
		"Client certificates of the previous signer have to be replaced: "+secret.Name+".")
	return false, v.regenerate(ctx, secret)
}

// pruneTrust removes revoked certificates from the trusted authorities of the class.
func (v *revocation) pruneTrust(ctx context.Context) error {
	trust, err := v.readBundle(ctx, v.hcp, v.class.TrustConfigMap())
	if err != nil {
		return err
	}
	certs, err := trust.certificates()
	if err != nil {
		return err
	}
	return trust.write(ctx, pki.Bundle(slices.DeleteFunc(certs, v.revoked)))
}

// published returns the certificates that the operator publishes to the API server.
func (v *revocation) published(ctx context.Context) ([]*x509.Certificate, error) {
	total, err := v.readBundle(ctx, v.hcp, contract.TotalClientCAConfigMap)
	if err != nil {
		return nil, err
	}
	return total.certificates()
}

// awaitRefusal waits until the server rejects the previous signer and accepts the new one. After verificationTimeout it gives up: another
// request has to replace this one.
func (v *revocation) awaitRefusal(ctx context.Context, signer, previous *pki.Authority) (time.Duration, error) {
	const kind = certificatesv1alpha1.PreviousCertificatesRevokedType
	began := meta.FindStatusCondition(v.crr.Status.Conditions, certificatesv1alpha1.LeafCertificatesRegeneratedType).LastTransitionTime
	if v.now.Sub(began.Time) > verificationTimeout {
		v.setFalse(kind, reasonVerificationTimeout, fmt.Sprintf("Timed out after %s waiting for the API server to reject the previous signer.", verificationTimeout))
		return 0, nil
	}
	waiting := func(message string) (time.Duration, error) {
		v.setFalse(kind, reasonWaiting, message)
		return probeInterval, nil
	}
	total, err := v.published(ctx)
	if err != nil {
		return 0, err
	}
	if containsCertificate(total, previous.Certificate()) {
		return waiting("Waiting for the previous signer to be removed from the bundle of client authorities.")
	}
	if accepted, err := v.Probe.Accepts(ctx, v.hcp, previous.Pair); err != nil || accepted {
		return waiting("Waiting for the API server to reject the previous signer." + reasonSuffix(err))
	}
	if accepted, err := v.Probe.Accepts(ctx, v.hcp, signer.Pair); err != nil || !accepted {
		return waiting("Waiting for the API server to accept the new signer." + reasonSuffix(err))
	}
	v.setTrue(kind, "The API server rejects the previous signer.")
	return 0, nil
}
