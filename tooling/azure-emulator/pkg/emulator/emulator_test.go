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
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

func groupsOf(t *testing.T, azure *emulatortest.Azure, credential azcore.TokenCredential) *armresources.ResourceGroupsClient {
	t.Helper()
	return made(armresources.NewResourceGroupsClient(subscription, credential, azure.Options()))(t)
}

func TestFaults(t *testing.T) {
	azure, ctx := start(t, emulator.Options{}), t.Context()
	groups := groupsOf(t, azure, azure.Tokens)
	group := armresources.ResourceGroup{Location: to.Ptr("westus3")}
	add := func(rule faults.Rule) {
		t.Helper()
		made(azure.Faults().Add(rule))(t)
	}

	add(faults.Rule{Methods: []string{"PUT"}, Services: []string{"arm"}, Path: "/resourcegroups/MANAGED", Status: 429, RetryAfterMS: 1500, Count: 1})
	_, err := groups.CreateOrUpdate(ctx, "managed", group, nil)
	refused(t, err, http.StatusTooManyRequests, "TooManyRequests")
	var response *azcore.ResponseError
	if errors.As(err, &response) && (response.RawResponse.Header.Get("Retry-After") != "2" || response.RawResponse.Header.Get("x-ms-retry-after-ms") != "1500") {
		t.Errorf("a throttled request is answered with %v", response.RawResponse.Header)
	}

	add(faults.Rule{Methods: []string{"PUT"}, DropResponse: true, Count: 1})
	if _, err := groups.CreateOrUpdate(ctx, "managed", group, nil); err == nil || errors.As(err, &response) && response.StatusCode != 429 {
		t.Errorf("a lost answer gives %v", err)
	}
	if _, err := groups.Get(ctx, "managed", nil); err != nil {
		t.Errorf("what was done is not there after its answer was lost: %v", err)
	}

	add(faults.Rule{Methods: []string{"DELETE"}, DropRequest: true, Count: 1})
	if _, err := groups.BeginDelete(ctx, "managed", nil); err == nil {
		t.Error("a lost request was answered")
	}
	if _, err := groups.Get(ctx, "managed", nil); err != nil {
		t.Errorf("a lost request had its effect: %v", err)
	}
}

// fixed is a credential that always gives one token.
type fixed string

func (f fixed) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(f), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokens(t *testing.T) {
	azure := start(t, emulator.Options{})
	other := start(t, emulator.Options{})
	token := func(of *emulatortest.Azure, audience string, expires time.Duration) fixed {
		return fixed(made(of.Tokens.Token(audience, time.Now().Add(expires)))(t))
	}
	const manage = "https://management.azure.com"
	tests := map[string]struct {
		reason     string
		credential fixed
		status     int
	}{
		"Good":          {"a token of the authority for Resource Manager", token(azure, manage, time.Hour), http.StatusNotFound},
		"OldAudience":   {"Resource Manager has two names", token(azure, "https://management.core.windows.net/", time.Hour), http.StatusNotFound},
		"OtherAudience": {"a token for a vault is good for nothing else", token(azure, "https://vault.azure.net", time.Hour), http.StatusUnauthorized},
		"Expired":       {"a token ends", token(azure, manage, -time.Hour), http.StatusUnauthorized},
		"OtherIssuer":   {"another authority signs with another key", token(other, manage, time.Hour), http.StatusUnauthorized},
		"Nonsense":      {"not a token at all", "x.y.z", http.StatusUnauthorized},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := groupsOf(t, azure, tc.credential).Get(t.Context(), "none", nil)
			var response *azcore.ResponseError
			if !errors.As(err, &response) || response.StatusCode != tc.status {
				t.Errorf("%s: got %v, want %d", tc.reason, err, tc.status)
			}
		})
	}
}

// TestWhatIsNotEmulatedIsRefused names things that Azure has and the emulator has not.
func TestWhatIsNotEmulatedIsRefused(t *testing.T) {
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
		"Secrets":       {"GET", "/secrets/x?api-version=7.6", "https://vault.azure.net", 501, "NotImplemented"},
		"BlobBlocks":    {"PUT", "/oidc/issuers/x?comp=block", "https://storage.azure.com", 501, "NotImplemented"},
		"OneSegment":    {"GET", "/subscriptions?api-version=2021-04-01", "https://management.azure.com", 404, "InvalidResourceId"},
		"Nothing":       {"GET", "/?api-version=2021-04-01", "https://management.azure.com", 404, "InvalidResourceId"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := made(http.NewRequest(tc.method, azure.URL+tc.path, strings.NewReader("{}")))(t)
			request.Header.Set("Authorization", "Bearer "+made(azure.Tokens.Token(tc.audience, time.Now().Add(time.Hour)))(t))
			response := made(azure.HTTP().Do(request))(t)
			defer response.Body.Close()
			text := made(io.ReadAll(response.Body))(t)
			if response.StatusCode != tc.status || !strings.Contains(string(text), tc.code) {
				t.Errorf("got %d %s, want %d %s", response.StatusCode, text, tc.status, tc.code)
			}
		})
	}
}

// TestAssumedCustomers reads what nobody made.
func TestAssumedCustomers(t *testing.T) {
	azure, ctx := start(t, emulator.Options{AssumeCustomers: true}), t.Context()
	subnets := made(armnetwork.NewSubnetsClient(subscription, azure.Tokens, azure.Options()))(t)
	subnet := made(subnets.Get(ctx, "customer", "vnet", "workers", nil))(t)
	nsg := "/subscriptions/" + subscription + "/resourceGroups/customer/providers/Microsoft.Network/networkSecurityGroups/nsg"
	subnet.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &nsg}
	_, err := subnets.BeginCreateOrUpdate(ctx, "customer", "vnet", "workers", subnet.Subnet, nil)
	must(t, 0, err)
	identities := made(armmsi.NewUserAssignedIdentitiesClient(subscription, azure.Tokens, azure.Options()))(t)
	identity := made(identities.Get(ctx, "customer", "registry", nil))(t)
	assignments := made(armauthorization.NewRoleAssignmentsClient(subscription, azure.Tokens, azure.Options()))(t)
	page := made(assignments.NewListForScopePager(nsg, &armauthorization.RoleAssignmentsClientListForScopeOptions{
		Filter: to.Ptr("assignedTo('" + *identity.Properties.PrincipalID + "')")}).NextPage(ctx))(t)
	if len(page.Value) != 1 {
		t.Errorf("an assumed identity has %d roles, want 1", len(page.Value))
	}
	if _, err := groupsOf(t, azure, azure.Tokens).Get(ctx, "managed", nil); true {
		refused(t, err, http.StatusNotFound, "ResourceGroupNotFound")
	}
	left := made(azure.Leftovers())(t)
	if want := []string{*subnet.ID + " with " + nsg}; !cmp.Equal(left, want) {
		t.Errorf("leftovers %v, want only the association: %v", left, want)
	}
}

// TestRestart stops the emulator in the middle of an operation and starts it again.
func TestRestart(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	options := emulator.Options{DataDir: dir, OperationDelay: 50 * time.Millisecond, Seed: emulatortest.Seed(zone)}
	first := made(emulatortest.Start(options))(t)
	groups := groupsOf(t, first, first.Tokens)
	for _, name := range []string{"kept", "gone"} {
		_, err := groups.CreateOrUpdate(ctx, name, armresources.ResourceGroup{Location: to.Ptr("westus3")}, nil)
		must(t, 0, err)
	}
	_, err := groups.BeginDelete(ctx, "gone", nil)
	must(t, 0, err)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, options)
	groups = groupsOf(t, second, second.Tokens)
	_, err = groups.Get(ctx, "kept", nil)
	must(t, 0, err)
	for {
		if _, err = groups.Get(ctx, "gone", nil); err != nil {
			refused(t, err, http.StatusNotFound, "ResourceGroupNotFound")
			break
		}
	}
}
