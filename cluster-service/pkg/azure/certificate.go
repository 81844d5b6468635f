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

// certificateName is the certificate's in the vault, and that of the secret from which the control plane reads it.
func (a *attempt) certificateName() string { return "kas-" + a.cluster.ID() }

const (
	certificateMonths = 12
	// renewalPart is the part of a certificate's life, at its end, in which it is renewed, and longestRenewal the most that
	// is: whatever keeps a vault or its issuer from it is mended in that time.
	renewalPart    = 3
	longestRenewal = 60 * 24 * time.Hour
)

// makeCertificate has the vault make the API server's certificate, with a key that does not leave it but as a secret, and
// its next version before it ends. The version before is the vault's newest until the next one is there.
func (a *attempt) makeCertificate(ctx context.Context) error {
	vault, err := a.Clients.Certificates()
	if err != nil {
		return err
	}
	found, err := vault.GetCertificateOperation(ctx, a.certificateName(), nil)
	operation := found.CertificateOperation
	// Somebody may have forgotten the operation of a certificate that is there.
	for begun := false; ; {
		if err != nil && !gone(err) {
			return err
		}
		if err == nil && operation.Status == nil {
			return fmt.Errorf("the vault does not say how far certificate %s is", a.certificateName())
		}
		switch {
		case gone(err), *operation.Status == "completed":
			newest, err := a.newest(ctx, vault)
			if err != nil {
				return err
			}
			if newest != nil && a.adopt(newest) {
				return nil
			}
			if begun {
				return fmt.Errorf("the vault says that it made certificate %s, and does not have one that is new", a.certificateName())
			}
		case *operation.Status == "inProgress":
			a.await("the vault to issue certificate "+a.certificateName(), nil)
			return nil
		default:
			return a.forgetFailure(ctx, vault, operation)
		}
		begun = true
		created, createErr := vault.CreateCertificate(ctx, a.certificateName(), a.wantedCertificate(), nil)
		operation, err = created.CertificateOperation, createErr
		if answered(err, http.StatusConflict) {
			return a.makeWay(ctx, vault)
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
			// Keys of elliptic curves are made in no time.
			KeyProperties:    &azcertificates.KeyProperties{Exportable: to.Ptr(true), KeyType: to.Ptr(azcertificates.KeyTypeEC), Curve: to.Ptr(azcertificates.CurveNameP256), ReuseKey: to.Ptr(false)},
			SecretProperties: &azcertificates.SecretProperties{ContentType: to.Ptr("application/x-pem-file")},
			X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=" + host), ValidityInMonths: to.Ptr[int32](certificateMonths),
				SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{DNSNames: []*string{to.Ptr(host)}}},
		},
	}
}

// newest is the version that the vault gives to those who ask for the certificate; nil when there is none.
func (a *attempt) newest(ctx context.Context, vault Certificates) (*azcertificates.Certificate, error) {
	found, err := vault.GetCertificate(ctx, a.certificateName(), "", nil)
	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		return nil, err
	case len(found.CER) == 0:
		return nil, nil // in the making, or its making failed
	}
	if at := found.Attributes; found.ID == nil || at == nil || at.NotBefore == nil || at.Expires == nil {
		return nil, fmt.Errorf("the vault does not say which version of certificate %s it has, or until when", a.certificateName())
	}
	return &found.Certificate, nil
}

// adopt is done with a certificate, unless it is to be renewed. One that is another than the one before, whoever renewed it,
// is to be fetched by those who have that.
func (a *attempt) adopt(newest *azcertificates.Certificate) bool {
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

// renewalTime is when a certificate is to be renewed.
func renewalTime(begins, ends time.Time) time.Time {
	return ends.Add(-min(ends.Sub(begins)/renewalPart, longestRenewal))
}

// forgetFailure has the vault forget an operation that failed, which stands in the way of another. What there is of the
// certificate stays.
func (a *attempt) forgetFailure(ctx context.Context, vault Certificates, operation azcertificates.CertificateOperation) error {
	if _, err := vault.DeleteCertificateOperation(ctx, a.certificateName(), nil); err != nil && !gone(err) {
		return err
	}
	why := ""
	if operation.Error != nil {
		why = ": " + operation.Error.Error()
	}
	return fmt.Errorf("the vault could not issue certificate %s, its operation is %s%s", a.certificateName(), *operation.Status, why)
}

// makeWay removes what is left of a certificate of that name that was deleted; one that is in the making is awaited.
func (a *attempt) makeWay(ctx context.Context, vault Certificates) error {
	if _, err := vault.PurgeDeletedCertificate(ctx, a.certificateName(), nil); err != nil && !gone(err) {
		return err
	}
	a.await("the vault to purge an old certificate "+a.certificateName(), nil)
	return nil
}

// removeCertificate deletes the certificate and gives its name back, which a deleted one keeps.
func (a *attempt) removeCertificate(ctx context.Context) error {
	vault, err := a.Clients.Certificates()
	if err != nil {
		return err
	}
	if _, err := vault.DeleteCertificate(ctx, a.certificateName(), nil); err != nil && !gone(err) {
		return err
	}
	_, err = vault.PurgeDeletedCertificate(ctx, a.certificateName(), nil)
	switch {
	case err == nil || gone(err):
		a.done()
		return nil
	case answered(err, http.StatusConflict):
		a.await("the vault to delete certificate "+a.certificateName(), nil)
		return nil
	}
	return err
}
