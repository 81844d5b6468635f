package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// Certificates are valid for certificateMonths. The vault renews them at renewalPercentage of that time.
const (
	certificateMonths = 12
	renewalPercentage = 66
)

// The pauses between two requests for the state of an issuance.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Certificate creates a certificate in a Key Vault, which renews it. A certificate of the same name with another DNS name or issuer
// gets a new version.
type Certificate struct{ Connection }

type wanted struct {
	Vault   string `json:"vault"`
	Name    string `json:"name"`
	DNSName string `json:"dnsName"`
	Issuer  string `json:"issuer"`
}

// Run creates the certificate and waits until it is issued.
func (a Certificate) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	var with wanted
	if err := action.Decode(r, &with); err != nil {
		return nil, err
	}
	client, err := azcertificates.NewClient(with.Vault, a.Credential, &azcertificates.ClientOptions{ClientOptions: a.Options.ClientOptions, DisableChallengeResourceVerification: a.AnyVault})
	if err != nil {
		return nil, err
	}
	return nil, (&issuance{wanted: with, client: client, request: r}).run(ctx)
}

// issuance is one execution of Certificate.
type issuance struct {
	wanted
	client  *azcertificates.Client
	request action.Request
}

func (i *issuance) run(ctx context.Context) error {
	pauses := backoff.New(firstPause, lastPause)
	for begun := false; ; {
		status, failure, err := i.operation(ctx)
		switch {
		case err != nil:
			return err
		case status == "inProgress":
			if err := pauses.Wait(ctx); err != nil {
				return fmt.Errorf("waiting for the issuer of the certificate %s: %w", i.Name, err)
			}
			continue
		case status == "failed" && begun:
			return fmt.Errorf("the issuer refused the certificate %s: %s", i.Name, failure)
		case status == "failed":
			// The vault accepts no other operation before. The existing versions stay.
			if _, err := i.client.DeleteCertificateOperation(ctx, i.Name, nil); err != nil && !isNotFound(err) {
				return classified("deleting the failed operation of the certificate "+i.Name, err)
			}
		}
		current, err := i.isCurrent(ctx)
		if err != nil || current {
			return err
		}
		if begun {
			return fmt.Errorf("the vault has issued the certificate %s and does not show it", i.Name)
		}
		begun = true
		if err := i.create(ctx); err != nil {
			return err
		}
	}
}

// operation returns the state of the newest operation: inProgress, failed with its cause, or empty if none is pending.
func (i *issuance) operation(ctx context.Context) (status, failure string, err error) {
	found, err := i.client.GetCertificateOperation(ctx, i.Name, nil)
	switch {
	case isNotFound(err):
		return "", "", nil
	case err != nil:
		return "", "", classified("reading the operation of the certificate "+i.Name, err)
	case found.Status == nil:
		return "", "", fmt.Errorf("the vault reports no status for the operation of the certificate %s", i.Name)
	}
	if found.Error != nil {
		failure = found.Error.Error()
	}
	switch *found.Status {
	case "inProgress":
		return "inProgress", "", nil
	case "completed":
		return "", "", nil
	}
	return "failed", failure, nil
}

// isCurrent reports whether the vault has the certificate with the wanted name and issuer.
func (i *issuance) isCurrent(ctx context.Context) (bool, error) {
	found, err := i.client.GetCertificate(ctx, i.Name, "", nil)
	switch {
	case isNotFound(err):
		return false, nil
	case err != nil:
		return false, classified("reading the certificate "+i.Name, err)
	case len(found.CER) == 0 || found.Policy == nil:
		return false, nil
	}
	policy := found.Policy
	if policy.IssuerParameters == nil || policy.X509CertificateProperties == nil || policy.X509CertificateProperties.SubjectAlternativeNames == nil {
		return false, nil
	}
	issuer := policy.IssuerParameters.Name
	current := issuer != nil && *issuer == i.Issuer && slices.Equal(texts(policy.X509CertificateProperties.SubjectAlternativeNames.DNSNames), []string{i.DNSName})
	if current {
		fmt.Fprintf(i.request.Log, "the vault has the certificate %s for %s\n", i.Name, i.DNSName)
	}
	return current, nil
}

func (i *issuance) create(ctx context.Context) error {
	policy := &azcertificates.CertificatePolicy{
		IssuerParameters: &azcertificates.IssuerParameters{Name: to.Ptr(i.Issuer)},
		KeyProperties:    &azcertificates.KeyProperties{Exportable: to.Ptr(true), KeyType: to.Ptr(azcertificates.KeyTypeEC), Curve: to.Ptr(azcertificates.CurveNameP256), ReuseKey: to.Ptr(false)},
		SecretProperties: &azcertificates.SecretProperties{ContentType: to.Ptr("application/x-pem-file")},
		LifetimeActions: []*azcertificates.LifetimeAction{{Action: &azcertificates.LifetimeActionType{ActionType: to.Ptr(azcertificates.CertificatePolicyActionAutoRenew)},
			Trigger: &azcertificates.LifetimeActionTrigger{LifetimePercentage: to.Ptr[int32](renewalPercentage)}}},
		X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=" + i.DNSName), ValidityInMonths: to.Ptr[int32](certificateMonths),
			SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{DNSNames: []*string{to.Ptr(i.DNSName)}}},
	}
	_, err := i.client.CreateCertificate(ctx, i.Name, azcertificates.CreateCertificateParameters{CertificatePolicy: policy}, nil)
	if !hasStatus(err, http.StatusConflict) {
		if err != nil {
			return classified("creating the certificate "+i.Name, err)
		}
		fmt.Fprintf(i.request.Log, "requested the certificate %s for %s from %s\n", i.Name, i.DNSName, i.Issuer)
		return nil
	}
	if _, deletedErr := i.client.GetDeletedCertificate(ctx, i.Name, nil); deletedErr == nil {
		return errors.New("the vault has a deleted certificate " + i.Name + ", which reserves the name: recover or purge it")
	}
	return classified("creating the certificate "+i.Name, err)
}
