package azure

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// certificateName returns the name of the certificate in the vault and of the secret from which the control plane reads it.
func (a *attempt) certificateName() string { return "kas-" + a.cluster.ID() }

const (
	certificateMonths = 12
	// A certificate is renewed in the last 1/renewalPart of its validity, but at most maxRenewalLead before its end. That
	// leaves enough time to repair a vault or an issuer that cannot renew it.
	renewalPart    = 3
	maxRenewalLead = 60 * 24 * time.Hour
)

// ensureCertificate makes the vault issue the API server's certificate, and its next version before the certificate ends. The
// key leaves the vault only as a secret. Until the next version is issued, the previous one stays the vault's newest.
func (a *attempt) ensureCertificate(ctx context.Context) error {
	vault, err := a.Clients.Certificates()
	if err != nil {
		return err
	}
	found, err := vault.GetCertificateOperation(ctx, a.certificateName(), nil)
	operation := found.CertificateOperation
	// The vault may have a certificate without an operation, because operations can be deleted.
	for begun := false; ; {
		if err != nil && !isNotFound(err) {
			return err
		}
		if err == nil && operation.Status == nil {
			return fmt.Errorf("the vault reports no status for the operation of certificate %s", a.certificateName())
		}
		switch {
		case isNotFound(err), *operation.Status == "completed":
			newest, err := a.newest(ctx, vault)
			if err != nil {
				return err
			}
			if newest != nil && a.accept(newest) {
				return nil
			}
			if begun {
				return fmt.Errorf("the vault reports certificate %s as issued and does not have a new version of it", a.certificateName())
			}
		case *operation.Status == "inProgress":
			a.await("the vault to issue certificate "+a.certificateName(), nil)
			return nil
		default:
			return a.discardFailedOperation(ctx, vault, operation)
		}
		begun = true
		created, createErr := vault.CreateCertificate(ctx, a.certificateName(), a.wantedCertificate(), nil)
		operation, err = created.CertificateOperation, createErr
		if hasStatus(err, http.StatusConflict) {
			return a.recoverDeleted(ctx, vault)
		}
		if err != nil {
			return err
		}
	}
}

func (a *attempt) wantedCertificate() azcertificates.CreateCertificateParameters {
	host := a.Region.APIHost(a.cluster.Status.GetBaseDomainPrefix())
	return azcertificates.CreateCertificateParameters{
		Tags: map[string]*string{ownerTag: to.Ptr(a.cluster.UID)},
		CertificatePolicy: &azcertificates.CertificatePolicy{
			IssuerParameters: &azcertificates.IssuerParameters{Name: to.Ptr(a.Config.CertificateIssuer)},
			// Generating an elliptic curve key takes much less time than an RSA key.
			KeyProperties:    &azcertificates.KeyProperties{Exportable: to.Ptr(true), KeyType: to.Ptr(azcertificates.KeyTypeEC), Curve: to.Ptr(azcertificates.CurveNameP256), ReuseKey: to.Ptr(false)},
			SecretProperties: &azcertificates.SecretProperties{ContentType: to.Ptr("application/x-pem-file")},
			X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=" + host), ValidityInMonths: to.Ptr[int32](certificateMonths),
				SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{DNSNames: []*string{to.Ptr(host)}}},
		},
	}
}

// newest returns the newest version of the certificate, and nil when the vault has none.
func (a *attempt) newest(ctx context.Context, vault Certificates) (*azcertificates.Certificate, error) {
	found, err := vault.GetCertificate(ctx, a.certificateName(), "", nil)
	switch {
	case isNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case len(found.CER) == 0:
		return nil, nil // not issued yet, or the issuer failed
	}
	if at := found.Attributes; found.ID == nil || at == nil || at.NotBefore == nil || at.Expires == nil {
		return nil, fmt.Errorf("the vault reports certificate %s without a version or a validity", a.certificateName())
	}
	return &found.Certificate, nil
}

// accept finishes the step with the newest version, and returns false if that version must be renewed. If the version differs
// from the one before, the control plane must fetch it, whoever renewed it.
func (a *attempt) accept(newest *azcertificates.Certificate) bool {
	ends, version := *newest.Attributes.Expires, newest.ID.Version()
	renew := renewalTime(*newest.Attributes.NotBefore, ends)
	if !a.Now().Before(renew) {
		return false
	}
	a.outcome.Expires, a.outcome.Renew = ends, renew
	a.outcome.Facts = map[string]string{fleet.AzureCertificateVersion: version}
	if before := a.step.Facts[fleet.AzureCertificateVersion]; before != "" && before != version {
		a.outcome.Facts[fleet.AzureCertificateRenewed] = version
	}
	a.done()
	return true
}

// renewalTime returns the time from which a certificate is renewed.
func renewalTime(begins, ends time.Time) time.Time {
	return ends.Add(-min(ends.Sub(begins)/renewalPart, maxRenewalLead))
}

// discardFailedOperation deletes the failed operation of a certificate, because the vault accepts no other operation before.
// The existing versions stay.
func (a *attempt) discardFailedOperation(ctx context.Context, vault Certificates, operation azcertificates.CertificateOperation) error {
	if _, err := vault.DeleteCertificateOperation(ctx, a.certificateName(), nil); err != nil && !isNotFound(err) {
		return err
	}
	why := ""
	if operation.Error != nil {
		why = ": " + operation.Error.Error()
	}
	return fmt.Errorf("the vault could not issue certificate %s: its operation has status %s%s", a.certificateName(), *operation.Status, why)
}

// recoverDeleted recovers a deleted certificate of this name, which reserves the name. Nobody can purge it, because the vaults of a region have
// purge protection. An operation in progress is awaited.
func (a *attempt) recoverDeleted(ctx context.Context, vault Certificates) error {
	if _, err := vault.RecoverDeletedCertificate(ctx, a.certificateName(), nil); err != nil && !isNotFound(err) && !hasStatus(err, http.StatusConflict) {
		return err
	}
	a.await("the vault to recover the deleted certificate "+a.certificateName(), nil)
	return nil
}

// removeCertificate deletes the certificate. The vault keeps a deleted certificate for its retention period, and purges it then.
func (a *attempt) removeCertificate(ctx context.Context) error {
	vault, err := a.Clients.Certificates()
	if err != nil {
		return err
	}
	if _, err := vault.DeleteCertificate(ctx, a.certificateName(), nil); err != nil && !isNotFound(err) {
		return err
	}
	a.done()
	return nil
}
