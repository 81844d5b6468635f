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
)

const (
	// probeEvery is how often a server is asked whether it follows its new bundle, which nothing announces.
	probeEvery = 250 * time.Millisecond
	// verifyWithin is how long the refusal of the previous signer may take before it is reported as overdue.
	verifyWithin = 10 * time.Minute
)

// The reasons of conditions that the API has no constants for.
const (
	reasonAsExpected          = hyperv1.AsExpectedReason
	reasonWaiting             = hyperv1.WaitingForAvailableReason
	reasonVerificationTimeout = "RevocationVerificationTimeout"
)

// reconcileRevocation makes one pass over a revocation: it finds the first step that is not done, does what it takes, and
// writes how far it came. All that was found out is written each time, never a part of it.
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
	if err := o.Management.Status().Update(ctx, v.crr, manager); err != nil {
		return 0, fmt.Errorf("writing the status of revocation %s: %w", crr.Name, err)
	}
	for _, c := range v.crr.Status.Conditions {
		if c.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(crr.Status.Conditions, c.Type) {
			o.Log.Info("a revocation came further", "revocation", crr.Name, "controlPlane", crr.Namespace, "class", string(v.class), "condition", c.Type)
		}
	}
	return wait, nil
}

// revocation is one pass.
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

func (v *revocation) yes(kind, message string) {
	v.set(kind, metav1.ConditionTrue, reasonAsExpected, message)
}

func (v *revocation) no(kind, reason, message string) {
	v.set(kind, metav1.ConditionFalse, reason, message)
}

func (v *revocation) isTrue(kind string) bool {
	return meta.IsStatusConditionTrue(v.crr.Status.Conditions, kind)
}

// revoked says whether a certificate is among those that are revoked: it was valid at the moment of the revocation. What
// is newer begins at a later second.
func (v *revocation) revoked(cert *x509.Certificate) bool {
	return !cert.NotBefore.After(v.crr.Status.RevocationTimestamp.Time)
}

// advance goes through the steps up to the first that has to wait, and returns for how long if no event will say.
func (v *revocation) advance(ctx context.Context) (time.Duration, error) {
	if !slices.Contains(contract.SignerClasses(), v.class) {
		v.no(certificatesv1alpha1.SignerClassValidType, certificatesv1alpha1.SignerClassUnknownReason, fmt.Sprintf("Signer class %q unknown.", v.class))
		return 0, nil
	}
	v.yes(certificatesv1alpha1.SignerClassValidType, fmt.Sprintf("Signer class %q known.", v.class))
	if v.crr.Status.RevocationTimestamp == nil {
		// It is written before anything is done, so that no pass can forget which certificates were meant.
		v.crr.Status.RevocationTimestamp = &metav1.Time{Time: v.now.Truncate(time.Second)}
		v.no(certificatesv1alpha1.RootCertificatesRegeneratedType, certificatesv1alpha1.RootCertificatesStaleReason, "The signer has to be replaced.")
		return time.Millisecond, nil
	}
	previous, err := v.keepPrevious(ctx)
	if err != nil || previous == nil {
		return v.untilLater(), err
	}
	signer, err := v.replaceSigner(ctx)
	if err != nil || signer == nil {
		return v.untilLater(), err
	}
	v.yes(certificatesv1alpha1.RootCertificatesRegeneratedType, "The signer was replaced.")
	if !v.isTrue(certificatesv1alpha1.NewCertificatesTrustedType) {
		if wait, err := v.awaitTrust(ctx, signer, previous); err != nil || wait > 0 {
			return wait, err
		}
		v.yes(certificatesv1alpha1.NewCertificatesTrustedType, "The API server takes the new signer.")
	}
	if !v.isTrue(certificatesv1alpha1.LeafCertificatesRegeneratedType) {
		if done, err := v.replaceLeaf(ctx, signer); err != nil || !done {
			return 0, err
		}
		if err := v.prune(ctx); err != nil {
			return 0, err
		}
		v.yes(certificatesv1alpha1.LeafCertificatesRegeneratedType, "No client certificate depends on the previous signer.")
	}
	return v.awaitRefusal(ctx, signer, previous)
}

// untilLater is how long it takes until a certificate can be told from one that is revoked.
func (v *revocation) untilLater() time.Duration {
	return max(0, v.crr.Status.RevocationTimestamp.Add(time.Second).Sub(v.now))
}

// previousName is where the signer that is revoked is kept until its refusal was seen.
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

// keepPrevious copies the signer before it is replaced. Nil while there is no signer yet.
func (v *revocation) keepPrevious(ctx context.Context) (*pki.Authority, error) {
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
		if err := v.Management.Create(ctx, kept, manager); err != nil {
			return nil, fmt.Errorf("keeping the previous signer: %w", err)
		}
	}
	v.crr.Status.PreviousSigner = &corev1.LocalObjectReference{Name: kept.Name}
	return pki.ReadAuthority(pairOf(kept))
}

// replaceSigner has the signer made anew, and returns the new one. Nil while it is not there.
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
	v.no(certificatesv1alpha1.RootCertificatesRegeneratedType, certificatesv1alpha1.RootCertificatesStaleReason, "The signer has to be replaced.")
	// One that began in the second of the revocation would have to be replaced again.
	if v.untilLater() > 0 {
		return nil, nil
	}
	return nil, v.regenerate(ctx, secret)
}

// regenerate asks for a certificate to be made anew.
func (v *revocation) regenerate(ctx context.Context, secret *corev1.Secret) error {
	if secret.Annotations[contract.NotAfterAnnotation] == contract.ForceRegeneration {
		return nil
	}
	next := secret.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[contract.NotAfterAnnotation] = contract.ForceRegeneration
	if err := v.Management.Update(ctx, next, manager); err != nil {
		return fmt.Errorf("asking for Secret %s to be made anew: %w", secret.Name, err)
	}
	return nil
}

// awaitTrust waits until the server takes the new signer, and makes sure that it still takes the previous one: clients
// that are to change over are not cut off.
func (v *revocation) awaitTrust(ctx context.Context, signer, previous *pki.Authority) (time.Duration, error) {
	const kind = certificatesv1alpha1.NewCertificatesTrustedType
	total, err := v.bundle(ctx, client.ObjectKey{Namespace: v.hcp.Namespace, Name: contract.TotalClientCAConfigMap})
	if err != nil {
		return 0, err
	}
	if !holds(total, signer.Certificate()) {
		v.no(kind, reasonWaiting, "Waiting for the new signer to be in the bundle of client authorities.")
		return probeEvery, nil
	}
	accepted, err := v.Probe.Accepts(ctx, v.hcp, signer.Pair)
	if err != nil || !accepted {
		v.no(kind, reasonWaiting, "Waiting for the API server to take the new signer."+because(err))
		return probeEvery, nil
	}
	if accepted, err = v.Probe.Accepts(ctx, v.hcp, previous.Pair); err != nil || !accepted {
		v.no(kind, reasonWaiting, "Waiting for the API server to take the previous signer as well as the new one."+because(err))
		// One that had ended, or was refused already, is no reason to wait for ever.
		if err == nil && (v.now.After(previous.Certificate().NotAfter) || !holds(total, previous.Certificate())) {
			return 0, nil
		}
		return probeEvery, nil
	}
	return 0, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// replaceLeaf has the class's own client certificate made anew if the new signer did not sign it.
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
	v.no(certificatesv1alpha1.LeafCertificatesRegeneratedType, certificatesv1alpha1.LeafCertificatesStaleReason,
		"Client certificates of the previous signer have to be replaced: "+secret.Name+".")
	return false, v.regenerate(ctx, secret)
}

// prune takes what is revoked out of the authorities of the class.
func (v *revocation) prune(ctx context.Context) error {
	certs, err := v.bundle(ctx, client.ObjectKey{Namespace: v.hcp.Namespace, Name: v.class.TrustConfigMap()})
	if err != nil {
		return err
	}
	return v.ensureBundle(ctx, v.hcp, v.class.TrustConfigMap(), pki.Bundle(slices.DeleteFunc(certs, v.revoked)))
}

// awaitRefusal waits until the server refuses the previous signer and takes the new one.
func (v *revocation) awaitRefusal(ctx context.Context, signer, previous *pki.Authority) (time.Duration, error) {
	const kind = certificatesv1alpha1.PreviousCertificatesRevokedType
	waiting := func(message string) (time.Duration, error) {
		reason := reasonWaiting
		began := meta.FindStatusCondition(v.crr.Status.Conditions, certificatesv1alpha1.LeafCertificatesRegeneratedType).LastTransitionTime
		if v.now.Sub(began.Time) > verifyWithin {
			reason = reasonVerificationTimeout
		}
		v.no(kind, reason, message)
		return probeEvery, nil
	}
	total, err := v.bundle(ctx, client.ObjectKey{Namespace: v.hcp.Namespace, Name: contract.TotalClientCAConfigMap})
	if err != nil {
		return 0, err
	}
	if holds(total, previous.Certificate()) {
		return waiting("Waiting for the previous signer to leave the bundle of client authorities.")
	}
	if accepted, err := v.Probe.Accepts(ctx, v.hcp, previous.Pair); err != nil || accepted {
		return waiting("Waiting for the API server to refuse the previous signer." + because(err))
	}
	if accepted, err := v.Probe.Accepts(ctx, v.hcp, signer.Pair); err != nil || !accepted {
		return waiting("Waiting for the API server to take the new signer." + because(err))
	}
	v.yes(kind, "The API server refuses the previous signer.")
	return 0, nil
}
