package config

import (
	"cmp"
	"fmt"
	"net/url"
)

// AzureResources configures the Azure resources of clusters. The defaults are those of the public cloud.
type AzureResources struct {
	// ResourceManager is the URL of Azure Resource Manager. Audience is the audience of its tokens, and Authority their issuer.
	ResourceManager string `json:"resourceManager"`
	Audience        string `json:"audience"`
	Authority       string `json:"authority"`
	// SubscriptionID and ResourceGroup belong to the service. They contain the DNS zone of the region's base domain.
	SubscriptionID string `json:"subscriptionID"`
	ResourceGroup  string `json:"resourceGroup"`
	// Vault is the URL of the Key Vault that creates the API servers' certificates, signed by CertificateIssuer. Without it no
	// certificates are created.
	Vault             string `json:"vault"`
	CertificateIssuer string `json:"certificateIssuer"`
	// ManagedIdentities is the source of the credentials of control planes' identities. Without it no credentials are stored.
	ManagedIdentities *ManagedIdentities `json:"managedIdentities,omitempty"`
	// Documents is the container for the OpenID documents of the clusters' issuers. The issuers' base URL must serve it.
	Documents DocumentStore `json:"documents"`
	// CAFile has the certificate authorities of all these services. Without it the system's authorities are used.
	CAFile string `json:"caFile"`
	// CredentialFile has the client and secret with which the service authenticates. Without it the workload's identity is used.
	CredentialFile string `json:"credentialFile"`
}

// ManagedIdentities is the data plane of managed identities, which issues the credentials of identities to resource providers.
type ManagedIdentities struct {
	// Vault is the URL of the Key Vault in which the credentials are stored. HostedClusters name it by azure.identitiesVault.
	Vault string `json:"vault"`
	// Domain has the hosts of the data plane. A cluster whose identity URL has another host gets no credentials.
	Domain string `json:"domain"`
	// Endpoint is the URL of an emulator, to which the paths of all identity URLs are sent, whatever their hosts are. Empty in Azure.
	Endpoint string `json:"endpoint"`
	// Audience is the audience of the tokens for the data plane.
	Audience string `json:"audience"`
}

// DocumentStore is a container of a storage account.
type DocumentStore struct {
	Account   string `json:"account"`
	Container string `json:"container"`
}

// complete sets the defaults.
func (a *AzureResources) complete() {
	for field, value := range map[*string]string{
		&a.ResourceManager: "https://management.azure.com", &a.Audience: "https://management.azure.com",
		&a.Authority: "https://login.microsoftonline.com/", &a.CertificateIssuer: "OneCertV2-PublicCA",
	} {
		if *field == "" {
			*field = value
		}
	}
	if m := a.ManagedIdentities; m != nil {
		m.Domain, m.Audience = cmp.Or(m.Domain, "identity.azure.net"), cmp.Or(m.Audience, "https://identity.azure.net")
	}
}

// validate returns an error for each missing or malformed field.
func (a *AzureResources) validate(path string) []error {
	var wrong []error
	for name, value := range map[string]string{"subscriptionID": a.SubscriptionID, "resourceGroup": a.ResourceGroup,
		"documents.account": a.Documents.Account, "documents.container": a.Documents.Container} {
		if value == "" {
			wrong = append(wrong, fmt.Errorf("%s: azureResources.%s is required", path, name))
		}
	}
	urls := map[string]string{"resourceManager": a.ResourceManager, "authority": a.Authority, "vault": a.Vault, "documents.account": a.Documents.Account}
	if m := a.ManagedIdentities; m != nil {
		if urls["managedIdentities.vault"] = m.Vault; m.Vault == "" {
			wrong = append(wrong, fmt.Errorf("%s: azureResources.managedIdentities.vault is required", path))
		}
		urls["managedIdentities.audience"], urls["managedIdentities.endpoint"] = m.Audience, m.Endpoint
	}
	for name, value := range urls {
		if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			wrong = append(wrong, fmt.Errorf("%s: azureResources.%s: %q is not an https URL", path, name, value))
		}
	}
	return wrong
}
