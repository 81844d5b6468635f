package emulator_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// underNames returns a client for which all names resolve to the emulator. Its certificate has the name example.com.
func underNames(t *testing.T, azure *emulatortest.Azure) *http.Client {
	t.Helper()
	transport := azure.HTTP().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.ServerName = "example.com"
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(azure.URL, "https://"))
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestNamesOfAzure uses the vault, a storage account and Resource Manager under their names in Azure, with the SDK's clients as they are
// in production. The vault's client verifies that the challenge belongs to the name.
func TestNamesOfAzure(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	options := azure.Options()
	options.Transport = underNames(t, azure)
	options.Cloud = cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
		cloud.ResourceManager: {Endpoint: "https://management.azure.com", Audience: "https://management.azure.com"}}}

	const name, content = "c/.well-known/openid-configuration", `{"issuer":"x"}`
	blobs := must.Get(azblob.NewClient("https://oidc.blob.core.windows.net", azure.Tokens, &azblob.ClientOptions{ClientOptions: options.ClientOptions}))(t)
	_, err := blobs.UploadBuffer(ctx, "issuers", name, []byte(content), nil)
	must.Do(t, err)
	for _, location := range []string{"https://oidc.blob.core.windows.net/issuers/", "https://OIDC.blob.core.windows.net:443/issuers/", "https://example.com/oidc/issuers/"} {
		response, err := options.Transport.Do(get(t, location+name))
		must.Do(t, err)
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != content {
			t.Errorf("a public read of %s: %d %q, %v", location, response.StatusCode, text, err)
		}
	}
	found := 0
	for pager := blobs.NewListBlobsFlatPager("issuers", nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		found += len(must.Get(page, err)(t).Segment.BlobItems)
	}
	if found != 1 {
		t.Errorf("%d blobs are listed, want 1", found)
	}
	_, err = blobs.UploadBuffer(ctx, "certificates", "x", nil, nil) // a container, and not the vault
	wantError(t, err, http.StatusNotFound, "ContainerNotFound")

	certificates := must.Get(azcertificates.NewClient("https://region.vault.azure.net", azure.Tokens, &azcertificates.ClientOptions{ClientOptions: options.ClientOptions}))(t)
	_, err = certificates.CreateCertificate(ctx, "kas", azcertificates.CreateCertificateParameters{CertificatePolicy: &azcertificates.CertificatePolicy{
		IssuerParameters:          &azcertificates.IssuerParameters{Name: to.Ptr("Self")},
		X509CertificateProperties: &azcertificates.X509CertificateProperties{Subject: to.Ptr("CN=api.c." + zone)},
	}}, nil)
	must.Do(t, err)
	created, err := certificates.GetCertificate(ctx, "kas", "", nil)
	if must.Do(t, err); !strings.HasPrefix(string(*created.ID), "https://region.vault.azure.net/certificates/kas/") {
		t.Errorf("the certificate has the ID %s", *created.ID)
	}

	groups := must.Get(armresources.NewResourceGroupsClient(emulatortest.Subscription, azure.Tokens, options))(t)
	_, err = groups.Get(ctx, "region", nil)
	must.Do(t, err)
}

// TestNamesSelectOneService sends requests under names that do not belong to their services.
func TestNamesSelectOneService(t *testing.T) {
	azure := start(t, emulator.Options{})
	client := underNames(t, azure)
	token, err := azure.Tokens.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://vault.azure.net/.default"}})
	must.Do(t, err)
	for location, want := range map[string]int{
		"https://other.blob.core.windows.net/issuers/x":                                 http.StatusMisdirectedRequest,
		"https://a.oidc.blob.core.windows.net/issuers/x":                                http.StatusMisdirectedRequest,
		"https://other.vault.azure.net/certificates?api-version=7.6":                    http.StatusMisdirectedRequest,
		"https://region.vault.azure.net/certificates?api-version=7.6":                   http.StatusOK,
		"https://region.vault.azure.net" + emulatortest.Group + "?api-version=7.6":      http.StatusNotImplemented,
		"https://region.vault.azure.net/oidc/issuers?restype=container&api-version=7.6": http.StatusNotImplemented,
		"https://management.azure.com/certificates?api-version=7.6":                     http.StatusUnauthorized,
		"https://region.vault.azure.net.example.com/certificates?api-version=7.6":       http.StatusOK,
	} {
		request := get(t, location)
		request.Header.Set("Authorization", "Bearer "+token.Token)
		response, err := client.Do(request)
		must.Do(t, err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", location, response.StatusCode, want)
		}
	}
}

func get(t *testing.T, location string) *http.Request {
	t.Helper()
	return must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, location, nil))(t)
}
