package emulator_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// The principals of the tests, the subscription of a customer, and a network in it.
const (
	serviceID  = "5e000000-0000-4000-8000-000000000001"
	customerID = "c0000000-0000-4000-8000-000000000002"
	nobodyID   = "00000000-0000-4000-8000-000000000003"
	networkID  = "/subscriptions/" + subscription + "/resourceGroups/customer/providers/Microsoft.Network/virtualNetworks/vnet"
	groupID    = "/subscriptions/" + subscription + "/resourceGroups/customer/providers/Microsoft.Network/networkSecurityGroups/nsg"
)

// startWithRoles starts an emulator with the roles of a region: its service may write records and certificates, read the customer's
// networks and change subnets; the customer owns the subscription. Both may change the service's zone or vault only if their roles
// say so.
func startWithRoles(t *testing.T, options emulator.Options) *emulatortest.Azure {
	t.Helper()
	const subnets = "7a000000-0000-4000-8000-000000000004"
	options.DataDir, options.Seed = t.TempDir(), emulatortest.Seed(zone)
	options.Seed.ResourceProviders = []string{serviceID}
	options.Seed.Roles = []rbac.Role{rbac.CredentialsRole(), {ID: subnets, Name: "Subnets", Actions: []string{"Microsoft.Network/virtualNetworks/*/read", "Microsoft.Network/virtualNetworks/read", "Microsoft.Network/virtualNetworks/subnets/write"}}}
	options.Seed.Assignments = []arm.SeedAssignment{
		{PrincipalID: serviceID, Role: arm.DNSZoneContributorRole, Scope: emulatortest.Group},
		{PrincipalID: serviceID, Role: arm.CertificatesOfficerRole, Scope: emulatortest.Vault},
		{PrincipalID: serviceID, Role: rbac.CredentialsRole().ID, Scope: emulatortest.Vault},
		{PrincipalID: serviceID, Role: arm.BlobDataContributorRole, Scope: emulatortest.Account},
		{PrincipalID: serviceID, Role: subnets, Scope: "/subscriptions/" + subscription},
		{PrincipalID: customerID, Role: arm.OwnerRole, Scope: "/subscriptions/" + subscription},
	}
	azure := must.Get(emulatortest.Start(options))(t)
	t.Cleanup(func() {
		if err := azure.Close(); err != nil {
			t.Error(err)
		}
	})
	return azure
}

// send sends a request as a principal and returns the status and the body of the response.
func send(t *testing.T, azure *emulatortest.Azure, principal, audience, method, path, body string) (int, string) {
	t.Helper()
	status, text, err := azure.Send(t.Context(), azure.Tokens.Principal(principal), audience, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

const (
	armAudience     = "https://management.azure.com"
	vaultAudience   = "https://vault.azure.net"
	storageAudience = "https://storage.azure.com"
	zonePath        = emulatortest.Group + "/providers/Microsoft.Network/dnsZones/" + zone
	certificateBody = `{"policy":{"key_props":{"kty":"RSA","key_size":2048},"x509_props":{"subject":"CN=x","validity_months":3},"issuer":{"name":"Self"}}}`
)

// TestCallersHaveOnlyTheirRoles sends each kind of request as the service, as a customer and as a principal without a role. The
// status of a permitted request is that of the operation; all others get 403.
func TestCallersHaveOnlyTheirRoles(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{AssumeCustomers: true})
	assignment := "/providers/Microsoft.Authorization/roleAssignments/" + uuid.NewString() + "?api-version=2022-04-01"
	const none = 0
	for _, c := range []struct {
		reason                       string
		audience, method, path, body string
		service, customer            int
	}{
		{"records of the service's zone", armAudience, "PUT", zonePath + "/TXT/a?api-version=2018-05-01", `{"properties":{"TTL":60,"TXTRecords":[{"value":["x"]}]}}`, 201, none},
		{"a zone that does not exist", armAudience, "GET", zonePath + "x?api-version=2018-05-01", "", 404, none},
		{"a list of zones", armAudience, "GET", emulatortest.Group + "/providers/Microsoft.Network/dnsZones?api-version=2018-05-01", "", 200, none},
		{"the service's resource group", armAudience, "GET", emulatortest.Group + "?api-version=2021-04-01", "", none, none},
		{"deleting the service's resource group", armAudience, "DELETE", emulatortest.Group + "?api-version=2021-04-01", "", none, none},
		{"roles in the service's group", armAudience, "PUT", emulatortest.Group + assignment, "{}", none, none},
		{"a type that is not emulated", armAudience, "GET", emulatortest.Group + "/providers/Microsoft.Compute/disks/x?api-version=2024-03-01", "", none, none},
		{"sizes of virtual machines", armAudience, "GET", sizesPath, "", none, 200},
		{"quotas", armAudience, "GET", quotasPath, "", none, 200},
		{"a customer's network", armAudience, "GET", networkID + "?api-version=2024-05-01", "", 200, 200},
		{"changing a customer's network", armAudience, "PUT", networkID + "?api-version=2024-05-01", `{"location":"westus3","properties":{"addressSpace":{"addressPrefixes":["10.0.0.0/8"]}}}`, none, 200},
		{"changing a customer's subnet", armAudience, "PUT", networkID + "/subnets/s?api-version=2024-05-01", `{"properties":{"addressPrefix":"10.1.0.0/16"}}`, 201, 200},
		{"joining a security group that the caller may not use", armAudience, "PUT", networkID + "/subnets/s?api-version=2024-05-01",
			`{"properties":{"addressPrefix":"10.1.0.0/16","networkSecurityGroup":{"id":"` + groupID + `"}}}`, none, 200},
		{"a customer's new resource group", armAudience, "PUT", "/subscriptions/" + subscription + "/resourceGroups/new?api-version=2021-04-01", `{"location":"westus3"}`, none, 201},
		{"another customer's resource group", armAudience, "PUT", "/subscriptions/22222222-2222-2222-2222-222222222222/resourceGroups/new?api-version=2021-04-01", `{"location":"westus3"}`, none, none},
		{"a built-in role", armAudience, "GET", "/providers/Microsoft.Authorization/roleDefinitions/" + arm.OwnerRole + "?api-version=2022-04-01", "", none, none},
		{"creating a certificate", vaultAudience, "POST", "/certificates/a/create?api-version=7.6", certificateBody, 202, none},
		{"reading a certificate", vaultAudience, "GET", "/certificates/a?api-version=7.6", "", 200, none},
		{"certificates that do not exist", vaultAudience, "GET", "/certificates/b?api-version=7.6", "", 404, none},
		{"listing certificates", vaultAudience, "GET", "/certificates?api-version=7.6", "", 200, none},
		{"listing deleted certificates", vaultAudience, "GET", "/deletedcertificates?api-version=7.6", "", 200, none},
		{"deleting a certificate", vaultAudience, "DELETE", "/certificates/a?api-version=7.6", "", 200, none},
		{"recovering a certificate", vaultAudience, "POST", "/deletedcertificates/a/recover?api-version=7.6", "", 200, none},
		{"storing a secret", vaultAudience, "PUT", "/secrets/a?api-version=7.6", `{"value":"x"}`, 200, none},
		{"listing secrets", vaultAudience, "GET", "/secrets?api-version=7.6", "", 200, none},
		{"listing versions of a secret", vaultAudience, "GET", "/secrets/a/versions?api-version=7.6", "", 200, none},
		{"reading a secret", vaultAudience, "GET", "/secrets/a?api-version=7.6", "", none, none},
		{"deleting a secret", vaultAudience, "DELETE", "/secrets/a?api-version=7.6", "", 200, none},
		{"recovering a secret", vaultAudience, "POST", "/deletedsecrets/a/recover?api-version=7.6", "", 200, none},
		{"purging a secret", vaultAudience, "DELETE", "/deletedsecrets/a?api-version=7.6", "", none, none},
		{"credentials of an identity", arm.IdentityAudience, "POST", "/identity/x?api-version=2024-01-01", `{"identityIds":["` + networkID + `"]}`, 404, none},
		{"writing a document", storageAudience, "PUT", "/oidc/issuers/a/keys.json", "{}", 201, none},
		{"reading a public document", storageAudience, "GET", "/oidc/issuers/a/keys.json", "", 200, 200},
		{"listing documents", storageAudience, "GET", "/oidc/issuers?restype=container&comp=list", "", 200, none},
		{"deleting a document", storageAudience, "DELETE", "/oidc/issuers/a/keys.json", "", 202, none},
		{"creating a container", storageAudience, "PUT", "/oidc/other?restype=container", "", 201, none},
	} {
		nobody := none
		if c.reason == "reading a public document" {
			nobody = http.StatusOK
		}
		// The service goes first, because it creates what the others may not see.
		for _, as := range []struct {
			principal string
			want      int
		}{{serviceID, c.service}, {customerID, c.customer}, {nobodyID, nobody}} {
			if as.want == none {
				as.want = http.StatusForbidden
			}
			status, text := send(t, azure, as.principal, c.audience, c.method, c.path, c.body)
			if status != as.want || as.want == http.StatusForbidden && !strings.Contains(text, as.principal) {
				t.Errorf("%s as %s: %d %s, want %d; a refusal names the principal", c.reason, as.principal, status, text, as.want)
			}
		}
	}
}

// TestOperationsBelongToTheirResource polls the operation of another principal.
func TestOperationsBelongToTheirResource(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{OperationDelay: 1 << 40})
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodDelete, azure.URL+zonePath+"?api-version=2018-05-01", nil))(t)
	token := must.Get(azure.Tokens.Principal(serviceID).GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{armAudience + "/.default"}}))(t)
	request.Header.Set("Authorization", "Bearer "+token.Token)
	response := must.Get(azure.HTTP().Do(request))(t)
	_ = response.Body.Close()
	path := strings.TrimPrefix(response.Header.Get("Azure-AsyncOperation"), azure.URL)
	for principal, want := range map[string]int{serviceID: http.StatusOK, customerID: http.StatusForbidden, nobodyID: http.StatusForbidden} {
		if status, text := send(t, azure, principal, armAudience, http.MethodGet, path, ""); status != want {
			t.Errorf("the operation as %s: %d %s, want %d", principal, status, text, want)
		}
	}
}

// TestAssignedRoleGivesRights assigns a role to an identity, and removes it.
func TestAssignedRoleGivesRights(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{})
	group := "/subscriptions/" + subscription + "/resourceGroups/g"
	identity := group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i?api-version=2024-11-30"
	assignment := group + "/providers/Microsoft.Authorization/roleAssignments/" + uuid.NewString() + "?api-version=2022-04-01"
	mustSend := func(principal, method, path, body string, want int) string {
		t.Helper()
		status, text := send(t, azure, principal, armAudience, method, path, body)
		if status != want {
			t.Fatalf("%s %s as %s: %d %s, want %d", method, path, principal, status, text, want)
		}
		return text
	}
	mustSend(customerID, http.MethodPut, group+"?api-version=2021-04-01", `{"location":"westus3"}`, 201)
	var created struct{ Properties struct{ PrincipalID string } }
	must.Do(t, json.Unmarshal([]byte(mustSend(customerID, http.MethodPut, identity, `{"location":"westus3"}`, 201)), &created))
	principal := created.Properties.PrincipalID
	mustSend(principal, http.MethodGet, identity, "", 403)
	const reader = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
	body := fmt.Sprintf(`{"properties":{"roleDefinitionId":"/providers/Microsoft.Authorization/roleDefinitions/%s","principalId":"%s"}}`, reader, principal)
	mustSend(principal, http.MethodPut, assignment, body, 403)
	mustSend(customerID, http.MethodPut, assignment, body, 201)
	mustSend(principal, http.MethodGet, identity, "", 200)
	mustSend(principal, http.MethodDelete, identity, "", 403)
	mustSend(customerID, http.MethodDelete, assignment, "", 200)
	mustSend(principal, http.MethodGet, identity, "", 403)
}

// TestAssignmentsOfSeedAreFixed deletes an assignment of the seed.
func TestAssignmentsOfSeedAreFixed(t *testing.T) {
	azure := startWithRoles(t, emulator.Options{})
	list := "/subscriptions/" + subscription + "/providers/Microsoft.Authorization/roleAssignments?api-version=2022-04-01&$filter=" + "principalId%20eq%20'" + customerID + "'"
	status, text := send(t, azure, customerID, armAudience, http.MethodGet, list, "")
	var found struct{ Value []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &found); err != nil || status != http.StatusOK || len(found.Value) != 1 {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := send(t, azure, customerID, armAudience, http.MethodDelete, found.Value[0].ID+"?api-version=2022-04-01", ""); status != http.StatusConflict {
		t.Errorf("deleting an assignment of the seed: %d %s", status, text)
	}
}

func TestSeedWithUselessAssignmentIsRefused(t *testing.T) {
	for want, assignment := range map[string]arm.SeedAssignment{
		"principalId": {Role: arm.OwnerRole, Scope: "/"},
		"role":        {PrincipalID: entratest.ObjectID, Role: "Owner", Scope: "/"},
		"scope":       {PrincipalID: entratest.ObjectID, Role: arm.OwnerRole},
	} {
		azure, err := emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: emulator.Seed{Assignments: []arm.SeedAssignment{assignment}}})
		if err == nil {
			_ = azure.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "assignments[0]."+want) {
			t.Errorf("an assignment without a valid %s: %v", want, err)
		}
	}
}

// sendOwner is send as the principal that owns everything.
func sendOwner(t *testing.T, azure *emulatortest.Azure, method, path, body string) (int, string) {
	t.Helper()
	return send(t, azure, entratest.ObjectID, armAudience, method, path, body)
}

// TestCustomRoles checks that a custom role permits its actions, and that it exists as long as it has assignments.
func TestCustomRoles(t *testing.T) {
	azure := start(t, emulator.Options{})
	role := emulatortest.Group + "/providers/Microsoft.Authorization/roleDefinitions/" + uuid.NewString()
	path := role + "?api-version=2022-04-01"
	definition := func(name, action string) string {
		return fmt.Sprintf(`{"properties":{"roleName":%q,"type":"CustomRole","assignableScopes":[%q],"permissions":[{"actions":[%q]}]}}`, name, emulatortest.Group, action)
	}
	want := func(status int, method, path, body string) string {
		t.Helper()
		got, text := sendOwner(t, azure, method, path, body)
		if got != status {
			t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
		}
		return text
	}
	want(http.StatusCreated, http.MethodPut, path, definition("Zones", "Microsoft.Network/dnsZones/read"))
	if body := want(http.StatusOK, http.MethodGet, path, ""); !strings.Contains(body, `"CustomRole"`) || !strings.Contains(body, "dnsZones/read") || !strings.Contains(body, `["`+emulatortest.Group+`"]`) {
		t.Errorf("the role is %s", body)
	}
	want(http.StatusBadRequest, http.MethodPut, strings.Replace(path, role[strings.LastIndex(role, "/")+1:], arm.OwnerRole, 1), definition("Mine", "*"))
	want(http.StatusConflict, http.MethodPut, emulatortest.Group+"/providers/Microsoft.Authorization/roleDefinitions/"+uuid.NewString()+"?api-version=2022-04-01", definition("zones", "*"))

	var identity struct {
		Properties struct{ PrincipalID string }
	}
	body := want(http.StatusCreated, http.MethodPut, emulatortest.Group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/reader?api-version=2023-01-31", `{"location":"westus3"}`)
	must.Do(t, json.Unmarshal([]byte(body), &identity))
	read := func() int {
		status, _ := send(t, azure, identity.Properties.PrincipalID, armAudience, http.MethodGet, zonePath+"?api-version=2018-05-01", "")
		return status
	}
	if status := read(); status != http.StatusForbidden {
		t.Errorf("without the role the status is %d", status)
	}
	assignment := emulatortest.Group + "/providers/Microsoft.Authorization/roleAssignments/" + uuid.NewString() + "?api-version=2022-04-01"
	want(http.StatusCreated, http.MethodPut, assignment, fmt.Sprintf(`{"properties":{"principalId":%q,"roleDefinitionId":%q}}`, identity.Properties.PrincipalID, role))
	if status := read(); status != http.StatusOK {
		t.Errorf("with the role the status is %d", status)
	}
	want(http.StatusConflict, http.MethodDelete, path, "")
	want(http.StatusOK, http.MethodDelete, assignment, "")
	want(http.StatusOK, http.MethodDelete, path, "")
	want(http.StatusNotFound, http.MethodGet, path, "")
}
