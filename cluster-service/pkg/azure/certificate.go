package azure

import (
	"context"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
)

// certificateName is the certificate's in the vault, and that of the secret from which the control plane reads it.
func (a *attempt) certificateName() string { return "kas-" + a.cluster.ID() }

const certificateMonths = 12

// makeCertificate has the vault make the API server's certificate, with a key that does not leave it but as a secret.
func (a *attempt) makeCertificate(ctx context.Context) error {
	vault, err := a.Clients.Certificates()
	if err != nil {
		return err
	}
	found, err := vault.GetCertificateOperation(ctx, a.certificateName(), nil)
	operation := found.CertificateOperation
	if gone(err) {
		host := a.Region.APIHost(a.cluster.Status.GetBaseDomainPrefix())
		var created azcertificates.CreateCertificateResponse
		created, err = vault.CreateCertificate(ctx, a.certificateName(), azcertificates.CreateCertificateParameters{
			Tags: map[string]*string{ownerTag: to.Ptr(a.cluster.UID)},
			CertificatePolicy: &azcertificates.CertificatePolicy{
				IssuerParameters: &azcertificates.IssuerParameters{Name: to.Ptr(a.Config.CertificateIssuer)},
				// Keys of elliptic curves are made in no time.
				KeyProperties:    &azcertificates.KeyProperties{Exportable: to.Ptr(true), KeyType: to.Ptr(azcertificates.KeyTypeEC), Curve: to.Ptr(azcertificates.CurveNameP256), ReuseKey: to.Ptr(false)},
				SecretProperties: &azcertificates.SecretProperties{ContentType: to.Ptr("application/x-pem-file")},
				X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=" + host), ValidityInMonths: to.Ptr[int32](certificateMonths),
					SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{DNSNames: []*string{to.Ptr(host)}}},
			},
		}, nil)
		operation = created.CertificateOperation
		if answered(err, http.StatusConflict) {
			// One of that name was deleted and is not purged.
			if _, err := vault.PurgeDeletedCertificate(ctx, a.certificateName(), nil); err != nil && !gone(err) {
				return err
			}
			a.await("the vault to purge an old certificate "+a.certificateName(), nil)
			return nil
		}
	}
	if err != nil {
		return err
	}
	if operation.Status == nil {
		return fmt.Errorf("the vault does not say how far certificate %s is", a.certificateName())
	}
	switch *operation.Status {
	case "completed":
		a.done()
		return nil
	case "inProgress":
		a.await("the vault to issue certificate "+a.certificateName(), nil)
		return nil
	}
	// A failed operation stands in the way of another until it is deleted with what there is of the certificate.
	if _, err := vault.DeleteCertificate(ctx, a.certificateName(), nil); err != nil && !gone(err) {
		return err
	}
	return fmt.Errorf("the vault could not issue certificate %s: its operation is %s", a.certificateName(), *operation.Status)
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
