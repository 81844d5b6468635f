package config

import (
	"fmt"
	"net/url"
)

// AzureResources is where clusters get resources in Azure, and as whom. Defaults are those of the public cloud.
type AzureResources struct {
	// ResourceManager is the URL of Azure Resource Manager, Audience whom tokens for it are for, Authority who issues them.
	ResourceManager string `json:"resourceManager"`
	Audience        string `json:"audience"`
	Authority       string `json:"authority"`
	// SubscriptionID and ResourceGroup are the service's own: there is the DNS zone of the region's base domain.
	SubscriptionID string `json:"subscriptionID"`
	ResourceGroup  string `json:"resourceGroup"`
	// Vault is the URL of the Key Vault that makes the API servers' certificates, signed by CertificateIssuer; empty makes
	// none.
	Vault             string `json:"vault"`
	CertificateIssuer string `json:"certificateIssuer"`
	// Documents is where the OpenID documents of the clusters' issuers are published: what stands there must be what is read
	// under the issuers' base URL.
	Documents DocumentStore `json:"documents"`
	// CAFile verifies all of these, where they are not Microsoft's; the system's authorities do when empty.
	CAFile string `json:"caFile"`
	// CredentialFile holds the client, with its secret, that the service is; empty is the workload's identity.
	CredentialFile string `json:"credentialFile"`
}

// DocumentStore is a container of a storage account.
type DocumentStore struct {
	Account   string `json:"account"`
	Container string `json:"container"`
}

// complete fills in the defaults.
func (a *AzureResources) complete() {
	for field, value := range map[*string]string{
		&a.ResourceManager: "https://management.azure.com", &a.Audience: "https://management.azure.com",
		&a.Authority: "https://login.microsoftonline.com/", &a.CertificateIssuer: "OneCertV2-PublicCA",
	} {
		if *field == "" {
			*field = value
		}
	}
}

// validate names what is missing or malformed.
func (a *AzureResources) validate(path string) []error {
	var wrong []error
	for name, value := range map[string]string{"subscriptionID": a.SubscriptionID, "resourceGroup": a.ResourceGroup,
		"documents.account": a.Documents.Account, "documents.container": a.Documents.Container} {
		if value == "" {
			wrong = append(wrong, fmt.Errorf("%s: azureResources.%s is required", path, name))
		}
	}
	for name, value := range map[string]string{"resourceManager": a.ResourceManager, "authority": a.Authority, "vault": a.Vault, "documents.account": a.Documents.Account} {
		if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			wrong = append(wrong, fmt.Errorf("%s: azureResources.%s: %q is not an https URL", path, name, value))
		}
	}
	return wrong
}
