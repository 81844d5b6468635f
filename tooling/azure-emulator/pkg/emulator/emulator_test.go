package emulator_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

func groupsClient(t *testing.T, azure *emulatortest.Azure, credential azcore.TokenCredential) *armresources.ResourceGroupsClient {
	t.Helper()
	return must.Get(armresources.NewResourceGroupsClient(subscription, credential, azure.Options()))(t)
}

func TestFaults(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	groups := groupsClient(t, azure, azure.Tokens)
	group := armresources.ResourceGroup{Location: to.Ptr("westus3")}
	add := func(rule faults.Rule) {
		t.Helper()
		must.Get(azure.Faults().Add(rule))(t)
	}

	add(faults.Rule{Methods: []string{"PUT"}, Services: []string{"arm"}, Path: "/resourcegroups/MANAGED", Status: 429, RetryAfterMS: 1500, Count: 1})
	_, err := groups.CreateOrUpdate(ctx, "managed", group, nil)
	wantError(t, err, http.StatusTooManyRequests, "TooManyRequests")
	var response *azcore.ResponseError
	if errors.As(err, &response) && (response.RawResponse.Header.Get("Retry-After") != "2" || response.RawResponse.Header.Get("x-ms-retry-after-ms") != "1500") {
		t.Errorf("the headers of a throttled request are %v", response.RawResponse.Header)
	}

	add(faults.Rule{Methods: []string{"PUT"}, DropResponse: true, Count: 1})
	if _, err := groups.CreateOrUpdate(ctx, "managed", group, nil); err == nil || errors.As(err, &response) && response.StatusCode != 429 {
		t.Errorf("with a dropped response: %v", err)
	}
	if _, err := groups.Get(ctx, "managed", nil); err != nil {
		t.Errorf("the request with the dropped response had no effect: %v", err)
	}

	add(faults.Rule{Methods: []string{"DELETE"}, DropRequest: true, Count: 1})
	if _, err := groups.BeginDelete(ctx, "managed", nil); err == nil {
		t.Error("the client received a response to a dropped request")
	}
	if _, err := groups.Get(ctx, "managed", nil); err != nil {
		t.Errorf("a dropped request had an effect: %v", err)
	}
}

// fixedToken is a credential with one token.
type fixedToken string

func (f fixedToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokens(t *testing.T) {
	azure := start(t, emulator.Options{})
	other := start(t, emulator.Options{})
	token := func(issuer *emulatortest.Azure, audience string, expires time.Duration) fixedToken {
		return fixedToken(must.Get(issuer.Tokens.Token(audience, time.Now().Add(expires)))(t))
	}
	const manage = "https://management.azure.com"
	tests := map[string]struct {
		reason     string
		credential fixedToken
		status     int
	}{
		"Valid":         {"a token of the authority for Resource Manager", token(azure, manage, time.Hour), http.StatusNotFound},
		"OldAudience":   {"Resource Manager has two audiences", token(azure, "https://management.core.windows.net/", time.Hour), http.StatusNotFound},
		"OtherAudience": {"a token for Key Vault is only valid there", token(azure, "https://vault.azure.net", time.Hour), http.StatusUnauthorized},
		"Expired":       {"the token has expired", token(azure, manage, -time.Hour), http.StatusUnauthorized},
		"OtherIssuer":   {"another authority has another key", token(other, manage, time.Hour), http.StatusUnauthorized},
		"NotAToken":     {"the text is not a JWT", "x.y.z", http.StatusUnauthorized},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := groupsClient(t, azure, tc.credential).Get(t.Context(), "none", nil)
			var response *azcore.ResponseError
			if !errors.As(err, &response) || response.StatusCode != tc.status {
				t.Errorf("%s: got %v, want %d", tc.reason, err, tc.status)
			}
		})
	}
}

// TestUnsupportedRequests checks the errors for parts of Azure that are not emulated, and for invalid requests.
func TestUnsupportedRequests(t *testing.T) {
	azure := start(t, emulator.Options{})
	tests := map[string]struct {
		method, path, audience string
		status                 int
		code                   string
	}{
		"UnknownType":   {"GET", emulatortest.Group + "/providers/Microsoft.Compute/virtualMachines/vm?api-version=2024-03-01", "https://management.azure.com", 501, "NotImplemented"},
		"UnknownMethod": {"PATCH", emulatortest.Group + "?api-version=2021-04-01", "https://management.azure.com", 501, "NotImplemented"},
		"NoVersion":     {"GET", emulatortest.Group, "https://management.azure.com", 400, "MissingApiVersionParameter"},
		"OtherVersion":  {"GET", emulatortest.Group + "?api-version=1999-01-01", "https://management.azure.com", 400, "InvalidResourceType"},
		"RecordType":    {"PUT", emulatortest.Group + "/providers/Microsoft.Network/dnsZones/" + zone + "/SRV/x?api-version=2018-05-01", "https://management.azure.com", 501, "NotImplemented"},
		"SecretBackup":  {"POST", "/secrets/x/backup?api-version=7.6", "https://vault.azure.net", 501, "NotImplemented"},
		"BlobBlocks":    {"PUT", "/oidc/issuers/x?comp=block", "https://storage.azure.com", 501, "NotImplemented"},
		"OneSegment":    {"GET", "/subscriptions?api-version=2021-04-01", "https://management.azure.com", 404, "InvalidResourceId"},
		"EmptyPath":     {"GET", "/?api-version=2021-04-01", "https://management.azure.com", 404, "InvalidResourceId"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := must.Get(http.NewRequest(tc.method, azure.URL+tc.path, strings.NewReader("{}")))(t)
			request.Header.Set("Authorization", "Bearer "+must.Get(azure.Tokens.Token(tc.audience, time.Now().Add(time.Hour)))(t))
			response := must.Get(azure.HTTP().Do(request))(t)
			defer response.Body.Close()
			text := must.Get(io.ReadAll(response.Body))(t)
			if response.StatusCode != tc.status || !strings.Contains(string(text), tc.code) {
				t.Errorf("got %d %s, want %d %s", response.StatusCode, text, tc.status, tc.code)
			}
		})
	}
}

// TestNothingIsAssumedInOwnSubscriptions reads resources of a customer and of the service that were not created.
func TestNothingIsAssumedInOwnSubscriptions(t *testing.T) {
	const own = "5a0e0b7e-3c3b-4c58-9d0f-0c6a5d3f1e02"
	azure, ctx := start(t, emulator.Options{AssumeCustomers: true, OwnSubscriptions: []string{strings.ToUpper(own)}}), t.Context()
	get := func(subscription string) error {
		identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(subscription, azure.Tokens, azure.Options()))(t)
		_, err := identities.Get(ctx, "group", "identity", nil)
		return err
	}
	if err := get(subscription); err != nil {
		t.Errorf("an identity of a customer: %v", err)
	}
	wantError(t, get(own), http.StatusNotFound, "ResourceGroupNotFound")
}

// TestOperationCompletesAfterRestart stops the emulator during an operation and starts it again.
func TestOperationCompletesAfterRestart(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	options := emulator.Options{DataDir: dir, OperationDelay: 50 * time.Millisecond, Seed: emulatortest.Seed(zone)}
	first := must.Get(emulatortest.Start(options))(t)
	groups := groupsClient(t, first, first.Tokens)
	for _, name := range []string{"kept", "deleted"} {
		_, err := groups.CreateOrUpdate(ctx, name, armresources.ResourceGroup{Location: to.Ptr("westus3")}, nil)
		must.Do(t, err)
	}
	_, err := groups.BeginDelete(ctx, "deleted", nil)
	must.Do(t, err)
	must.Do(t, first.Close())
	second := start(t, options)
	groups = groupsClient(t, second, second.Tokens)
	_, err = groups.Get(ctx, "kept", nil)
	must.Do(t, err)
	for {
		if _, err = groups.Get(ctx, "deleted", nil); err != nil {
			wantError(t, err, http.StatusNotFound, "ResourceGroupNotFound")
			break
		}
	}
}
