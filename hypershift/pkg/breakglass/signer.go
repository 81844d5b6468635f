package breakglass

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Lifetimes of certificates, and the ages at which they are renewed.
const (
	signerLifetime = 7 * 24 * time.Hour
	signerRefresh  = 2 * 24 * time.Hour
	clientLifetime = 36 * time.Hour
	clientRefresh  = 6 * time.Hour
)

// reconcileSigners manages the signers, bundles and client certificates of one control plane, and returns the time
// until the next renewal. In status fidelity they are created only when a certificate is requested for the first time,
// because most clusters of a scale test never need them.
func (o *Operator) reconcileSigners(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	var hcp hyperv1.HostedControlPlane
	if err := o.Management.Get(ctx, key, &hcp); err != nil || !hcp.DeletionTimestamp.IsZero() {
		return 0, client.IgnoreNotFound(err)
	}
	fidelity, err := contract.FidelityOf(&hcp)
	if err != nil {
		return 0, err
	}
	if fidelity == contract.FidelityStatus {
		if asked, err := o.isRequested(ctx, key.Namespace); err != nil || !asked {
			return 0, err
		}
	}
	now := time.Now()
	var total []byte
	var wait time.Duration
	for _, class := range contract.SignerClasses() {
		signer, due, err := o.ensureSigner(ctx, &hcp, class, now)
		if err != nil {
			return 0, err
		}
		trusted, err := o.ensureTrust(ctx, &hcp, class, signer, now)
		if err != nil {
			return 0, err
		}
		total = append(total, trusted...)
		clientDue, err := o.ensureClient(ctx, &hcp, class, signer, now)
		if err != nil {
			return 0, err
		}
		wait = schedule.ShorterWait(wait, schedule.ShorterWait(due, clientDue))
	}
	published, err := o.readBundle(ctx, &hcp, contract.TotalClientCAConfigMap)
	if err != nil {
		return 0, err
	}
	return wait, published.write(ctx, total)
}

// isRequested reports whether a certificate of a control plane is or was requested.
func (o *Operator) isRequested(ctx context.Context, namespace string) (bool, error) {
	var approvals certificatesv1alpha1.CertificateSigningRequestApprovalList
	if err := o.Management.List(ctx, &approvals, client.InNamespace(namespace)); err != nil || len(approvals.Items) > 0 {
		return err == nil, err
	}
	var revocations certificatesv1alpha1.CertificateRevocationRequestList
	if err := o.Management.List(ctx, &revocations, client.InNamespace(namespace)); err != nil || len(revocations.Items) > 0 {
		return err == nil, err
	}
	var signer corev1.Secret
	err := o.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: contract.CustomerBreakGlass.SignerSecret()}, &signer)
	return err == nil, client.IgnoreNotFound(err)
}

// ensureSigner returns the signer of a class, renewed if necessary, and the time until its next renewal.
func (o *Operator) ensureSigner(ctx context.Context, hcp *hyperv1.HostedControlPlane, class contract.SignerClass, now time.Time) (*pki.Authority, time.Duration, error) {
	var signer *pki.Authority
	secret, err := o.ensurePair(ctx, hcp, class.SignerSecret(), now, signerRefresh, func(pair pki.Pair) bool {
		signer, _ = pki.ReadAuthority(pair)
		return signer != nil
	}, func() (pki.Pair, string, error) {
		var err error
		name := fmt.Sprintf("%s_%s@%d", hcp.Namespace, class.SignerSecret(), now.Unix())
		if signer, err = pki.NewSigner(name, now, signerLifetime); err != nil {
			return pki.Pair{}, "", err
		}
		o.Log.Info("break-glass signer created", logkey.ControlPlane, hcp.Namespace, logkey.Class, string(class), logkey.Name, name)
		return signer.Pair, name, nil
	})
	if err != nil {
		return nil, 0, err
	}
	return signer, untilRefresh(secret, now, signerRefresh), nil
}

// ensureClient manages the class's own client certificate, which the operator of a real control plane uses.
func (o *Operator) ensureClient(ctx context.Context, hcp *hyperv1.HostedControlPlane, class contract.SignerClass, signer *pki.Authority, now time.Time) (time.Duration, error) {
	secret, err := o.ensurePair(ctx, hcp, class.ClientSecret(), now, clientRefresh, func(pair pki.Pair) bool {
		_, err := pki.ReadCertificate(pair.Cert)
		return err == nil
	}, func() (pki.Pair, string, error) {
		pair, err := signer.ClientFor(class.CommonNamePrefix()+utilrand.String(8), []string{"system:masters"}, now, clientLifetime)
		return pair, signer.Certificate().Subject.CommonName, err
	})
	if err != nil {
		return 0, err
	}
	return untilRefresh(secret, now, clientRefresh), nil
}

// untilRefresh returns the time until a certificate has to be renewed.
func untilRefresh(secret *corev1.Secret, now time.Time, refresh time.Duration) time.Duration {
	cert, err := pki.ReadCertificate(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return time.Second
	}
	return max(time.Second, cert.NotBefore.Add(refresh).Sub(now))
}

// ensurePair manages a certificate and its key in a secret. It creates a new one if it is missing or not usable, after
// refresh, or if regeneration is requested.
func (o *Operator) ensurePair(ctx context.Context, hcp *hyperv1.HostedControlPlane, name string, now time.Time, refresh time.Duration,
	usable func(pki.Pair) bool, fill func() (pki.Pair, string, error)) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := o.Management.Get(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: name}, &secret)
	exists := err == nil
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	pair := pki.Pair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
	if exists && secret.Annotations[contract.NotAfterAnnotation] != contract.ForceRegeneration && usable(pair) {
		if cert, err := pki.ReadCertificate(pair.Cert); err == nil && now.Before(cert.NotBefore.Add(refresh)) {
			return &secret, nil
		}
	}
	pair, issuer, err := fill()
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of Secret %s: %w", name, err)
	}
	cert, err := pki.ReadCertificate(pair.Cert)
	if err != nil {
		return nil, err
	}
	next := secret.DeepCopy()
	next.Namespace, next.Name, next.Type = hcp.Namespace, name, corev1.SecretTypeTLS
	next.OwnerReferences = []metav1.OwnerReference{ownerOf(hcp)}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[contract.NotBeforeAnnotation] = cert.NotBefore.UTC().Format(time.RFC3339)
	next.Annotations[contract.NotAfterAnnotation] = cert.NotAfter.UTC().Format(time.RFC3339)
	next.Annotations[contract.IssuerAnnotation] = issuer
	next.Data = map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key}
	if exists {
		err = o.Management.Update(ctx, next, fieldManager)
	} else {
		err = o.Management.Create(ctx, next, fieldManager)
	}
	if err != nil {
		return nil, fmt.Errorf("writing Secret %s: %w", name, err)
	}
	return next, nil
}

// ensureTrust manages the trusted authorities of a class: the signer and its predecessors until they expire. A
// revocation removes the predecessors.
func (o *Operator) ensureTrust(ctx context.Context, hcp *hyperv1.HostedControlPlane, class contract.SignerClass, signer *pki.Authority, now time.Time) ([]byte, error) {
	trust, err := o.readBundle(ctx, hcp, class.TrustConfigMap())
	if err != nil {
		return nil, err
	}
	certs, err := trust.certificates()
	if err != nil {
		return nil, err
	}
	certs = slices.DeleteFunc(certs, func(cert *x509.Certificate) bool { return now.After(cert.NotAfter) })
	if !containsCertificate(certs, signer.Certificate()) {
		certs = append([]*x509.Certificate{signer.Certificate()}, certs...)
	}
	content := pki.Bundle(certs)
	return content, trust.write(ctx, content)
}

// bundle is a ConfigMap of certificates as it was read. Two controllers change the bundles of a control plane, so each decides on and
// replaces the same version: a certificate that one of them has removed since does not return with the write of the other.
type bundle struct {
	management client.Writer
	read       *corev1.ConfigMap // without a UID if it does not exist
}

// readBundle reads a ConfigMap of certificates, which may not exist.
func (o *Operator) readBundle(ctx context.Context, hcp *hyperv1.HostedControlPlane, name string) (bundle, error) {
	var configMap corev1.ConfigMap
	err := o.Management.Get(ctx, client.ObjectKey{Namespace: hcp.Namespace, Name: name}, &configMap)
	if apierrors.IsNotFound(err) {
		return bundle{o.Management, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: hcp.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp)}}}}, nil
	}
	if err != nil {
		return bundle{}, fmt.Errorf("getting ConfigMap %s: %w", name, err)
	}
	return bundle{o.Management, &configMap}, nil
}

// certificates returns the certificates of the bundle; none if it does not exist.
func (b bundle) certificates() ([]*x509.Certificate, error) {
	certs, err := pki.ReadCertificates([]byte(b.read.Data[contract.CABundleKey]))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", b.read.Name, err)
	}
	return certs, nil
}

// write replaces the content, if it differs. It returns a conflict if another client has written or created the ConfigMap since it was
// read.
func (b bundle) write(ctx context.Context, content []byte) error {
	exists := b.read.UID != ""
	if exists && b.read.Data[contract.CABundleKey] == string(content) {
		return nil
	}
	next := b.read.DeepCopy()
	next.Data = map[string]string{contract.CABundleKey: string(content)}
	var err error
	if exists {
		err = b.management.Update(ctx, next, fieldManager)
	} else {
		err = b.management.Create(ctx, next, fieldManager)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", next.Name, err)
	}
	return nil
}

func containsCertificate(certs []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(certs, func(cert *x509.Certificate) bool { return bytes.Equal(cert.Raw, wanted.Raw) })
}

func ownerOf(hcp *hyperv1.HostedControlPlane) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: hyperv1.GroupVersion.String(), Kind: "HostedControlPlane", Name: hcp.Name, UID: hcp.UID}
}
