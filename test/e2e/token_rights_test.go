package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// The audiences of the emulated services of Azure.
const (
	cosmosAudience   = "https://127.0.0.1"
	armAudience      = "https://management.azure.com"
	vaultAudience    = "https://vault.azure.net"
	storageAudience  = "https://storage.azure.com"
	identityAudience = "https://identity.azure.net"
)

// clusterServiceName and customerName are the names of principals, as their credentials have them.
const clusterServiceName, customerName = "Cluster Service", "developer@local"

// TestTokensHaveOnlyTheirRights asks the token issuer for tokens of each identity of the region, and the emulators of Cosmos DB and of Azure for the rights of each
// token and for all role assignments. An identity has the rights that its role in Azure gives and no other one.
func TestTokensHaveOnlyTheirRights(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	tokens := regionTokens(t, ctx)

	t.Run("audiences", func(t *testing.T) {
		got := map[string][]string{}
		for name, audiences := range tokens {
			got[name] = slices.Sorted(maps.Keys(audiences))
		}
		all := []string{cosmosAudience, identityAudience, armAudience, storageAudience, vaultAudience}
		want := map[string][]string{customerName: all, clusterServiceName: all, "Azure Resource Manager": all, managementaccess.Forwarder: {armAudience, storageAudience}}
		for _, role := range database.Roles() {
			want[role.Service] = []string{cosmosAudience}
		}
		for name := range got {
			if strings.HasSuffix(name, "@hcpmesh.local") || strings.HasSuffix(name, "-gateway-tunnel") {
				want[name] = nil // engineers have tokens for admin only, and the agents of tunnels for the session gateway
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("audiences of tokens (-table +server):\n%s", diff)
		}
	})
	t.Run("Cosmos DB", func(t *testing.T) {
		want := map[string][]string{}
		for _, role := range database.Roles() {
			for _, grant := range role.Grants {
				for _, action := range grant.DataActions {
					for _, container := range database.Containers() {
						if grant.Container == "" || grant.Container == container.ID {
							want[role.Service] = append(want[role.Service], container.ID+" "+action[strings.LastIndex(action, "databaseAccounts/")+len("databaseAccounts/"):])
						}
					}
				}
			}
		}
		got := map[string][]string{}
		for name, audiences := range tokens {
			if text := audiences[cosmosAudience]; text != "" {
				got[name] = cosmosRights(t, ctx, text)
			}
		}
		compareRights(t, want, got)
	})
	t.Run("Azure", func(t *testing.T) {
		got := map[string][]string{}
		for name, audiences := range tokens {
			for request, r := range azureRequests() {
				text := audiences[r.audience]
				if text == "" {
					continue
				}
				switch status, body := azureResponse(t, ctx, text, r.method, region.Endpoints().Azure+r.path, "{}"); status {
				case http.StatusForbidden:
				case http.StatusUnauthorized:
					t.Errorf("%s as %s: %d %s", request, name, status, body)
				default:
					got[name] = append(got[name], request)
				}
			}
		}
		compareRights(t, map[string][]string{
			clusterServiceName:         {"list certificates", "list secrets", "request credentials of identities", "list documents", "append to a document", "list zones", "read a network of a customer"},
			managementaccess.Forwarder: {"append to a document", "read diagnostic settings of a customer"},
			customerName:               {"read a network of a customer", "delete a network of a customer", "read diagnostic settings of a customer"},
		}, got)
	})
	t.Run("role assignments", func(t *testing.T) {
		const own = "/subscriptions/" + servicesSubscription + "/resourceGroups/region"
		got, names := map[string][]string{}, objectIDs(t, tokens)
		for _, subscription := range []string{servicesSubscription, customersSubscription} {
			for _, assigned := range roleAssignments(t, ctx, tokens[clusterServiceName][armAudience], subscription) {
				name := names[assigned.PrincipalID]
				if name == "" && subscription == customersSubscription {
					continue // an identity of a customer
				}
				if text := assigned.role + " at " + assigned.Scope; !slices.Contains(got[name], text) {
					got[name] = append(got[name], text)
				}
			}
		}
		compareRights(t, map[string][]string{
			clusterServiceName: {rbac.CustomerRoleName + " at /", "DNS Zone Contributor at " + own, "Key Vault Certificates Officer at " + own + "/providers/Microsoft.KeyVault/vaults/region", rbac.CredentialsRole().Name + " at " + own + "/providers/Microsoft.KeyVault/vaults/region",
				"Storage Blob Data Contributor at " + own + "/providers/Microsoft.Storage/storageAccounts/oidc"},
			managementaccess.Forwarder: {customerlog.ForwarderRole().Name + " at /"},
			customerName:               {"Owner at /subscriptions/" + customersSubscription, "Storage Blob Data Contributor at /subscriptions/" + customersSubscription},
		}, got)
	})
}

// compareRights compares the rights of identities with those in a table, in any order.
func compareRights(t *testing.T, want, got map[string][]string) {
	t.Helper()
	for _, rights := range []map[string][]string{want, got} {
		for name := range rights {
			slices.Sort(rights[name])
		}
		maps.DeleteFunc(rights, func(_ string, rights []string) bool { return len(rights) == 0 })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-table +server):\n%s", diff)
	}
}

// regionTokens returns the tokens of each identity of the region by audience. It leaves out the audiences for which an identity gets none.
func regionTokens(t *testing.T, ctx context.Context) map[string]map[string]string {
	t.Helper()
	endpoints, tokens := region.Endpoints(), map[string]map[string]string{}
	for name := range endpoints.Workloads {
		tokens[name] = map[string]string{}
		credential := must.Get(endpoints.Credential(name))(t)
		for _, audience := range []string{cosmosAudience, identityAudience, armAudience, vaultAudience, storageAudience} {
			if issued, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}}); err == nil {
				tokens[name][audience] = issued.Token
			}
		}
	}
	for _, file := range []string{endpoints.CredentialsFile, endpoints.EngineersFile, endpoints.ARMCredentialsFile, endpoints.AzureCredentials} {
		text := must.Get(os.ReadFile(file))(t)
		var clients []local.Credentials
		if err := json.Unmarshal(text, &clients); err != nil || len(clients) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		for _, client := range clients {
			tokens[client.Name] = map[string]string{}
			for _, audience := range []string{cosmosAudience, identityAudience, armAudience, vaultAudience, storageAudience} {
				if issued := issuedToken(t, ctx, client, audience); issued != "" {
					tokens[client.Name][audience] = issued
				}
			}
		}
	}
	return tokens
}

// objectIDs returns the names of identities by the object IDs in their tokens.
func objectIDs(t *testing.T, tokens map[string]map[string]string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for name, audiences := range tokens {
		for _, text := range audiences {
			claims := jwt.MapClaims{}
			if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
				t.Fatal(err)
			}
			names[fmt.Sprint(claims["oid"])] = name
		}
	}
	return names
}

// cosmosRights returns the data actions that Cosmos DB permits to a token, each with the container. No request changes anything.
func cosmosRights(t *testing.T, ctx context.Context, token string) (rights []string) {
	t.Helper()
	client := regionClient(t)
	for _, container := range database.Containers() {
		collection := "/dbs/hcp/colls/" + container.ID
		for action, r := range map[string]struct {
			method, path, header, body string
		}{
			"readMetadata":                           {http.MethodGet, "", "", ""},
			"sqlDatabases/containers/executeQuery":   {http.MethodPost, "/docs", "x-ms-documentdb-isquery: true", `{"query":"SELECT * FROM c"}`},
			"sqlDatabases/containers/readChangeFeed": {http.MethodGet, "/docs", "A-IM: Incremental feed", ""},
			"sqlDatabases/containers/items/create":   {http.MethodPost, "/docs", "", "{}"}, // a document needs an ID
			"sqlDatabases/containers/items/upsert":   {http.MethodPost, "/docs", "x-ms-documentdb-is-upsert: true", "{}"},
			"sqlDatabases/containers/items/read":     {http.MethodGet, "/docs/none", "", ""},
			"sqlDatabases/containers/items/replace":  {http.MethodPut, "/docs/none", "", `{"id":"none","partitionKey":"none"}`},
			"sqlDatabases/containers/items/delete":   {http.MethodDelete, "/docs/none", "", ""},
		} {
			request := must.Get(http.NewRequestWithContext(ctx, r.method, region.Endpoints().Cosmos+collection+r.path, strings.NewReader(r.body)))(t)
			request.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+token))
			request.Header.Set("x-ms-documentdb-partitionkey", `["none"]`)
			request.Header.Set("x-ms-max-item-count", "1")
			if name, value, found := strings.Cut(r.header, ": "); found {
				request.Header.Set(name, value)
			}
			response := must.Get(client.Do(request))(t)
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			switch {
			case err != nil || response.StatusCode == http.StatusCreated:
				t.Fatalf("%s at %s: %d %s, %v", action, container.ID, response.StatusCode, text, err)
			case response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized: // a token of another tenant
				rights = append(rights, container.ID+" "+action)
			}
		}
	}
	return rights
}

const (
	servicesSubscription  = "9c1f0d5e-6b7a-4c2d-8e3f-0a1b2c3d4e5f"
	customersSubscription = "11111111-1111-1111-1111-111111111111"
)

// azureRequests returns requests to the emulator of Azure by their names. Those that a role permits change nothing.
func azureRequests() map[string]struct{ audience, method, path string } {
	const (
		own     = "/subscriptions/" + servicesSubscription + "/resourceGroups/region/providers/"
		network = "/subscriptions/" + customersSubscription + "/resourceGroups/none/providers/Microsoft.Network/virtualNetworks/none"
	)
	return map[string]struct{ audience, method, path string }{
		"list certificates":                      {vaultAudience, http.MethodGet, "/certificates?api-version=7.6"},
		"list secrets":                           {vaultAudience, http.MethodGet, "/secrets?api-version=7.6"},
		"request credentials of identities":      {identityAudience, http.MethodPost, "/identity/none?api-version=2024-01-01"},
		"read a secret":                          {vaultAudience, http.MethodGet, "/secrets/none?api-version=7.6"},
		"list documents":                         {storageAudience, http.MethodGet, "/oidc/issuers?restype=container&comp=list"},
		"append to a document":                   {storageAudience, http.MethodPut, "/oidc/issuers/none?comp=appendblock"},
		"list zones":                             {armAudience, http.MethodGet, own + "Microsoft.Network/dnsZones?api-version=2018-05-01"},
		"delete a network of the region":         {armAudience, http.MethodDelete, own + "Microsoft.Network/virtualNetworks/none?api-version=2024-05-01"},
		"assign a role":                          {armAudience, http.MethodPut, own + "Microsoft.Authorization/roleAssignments/b6b1f0a6-5d0b-4b7e-9f65-0d3a8a6d2c11?api-version=2022-04-01"},
		"read a network of a customer":           {armAudience, http.MethodGet, network + "?api-version=2024-05-01"},
		"delete a network of a customer":         {armAudience, http.MethodDelete, network + "?api-version=2024-05-01"},
		"read diagnostic settings of a customer": {armAudience, http.MethodGet, network + "/providers/Microsoft.Insights/diagnosticSettings?api-version=2021-05-01-preview"},
	}
}

// roleAssignment is the assignment of a role with the name of the role.
type roleAssignment struct {
	Scope, RoleDefinitionID, PrincipalID string
	role                                 string
}

// roleAssignments returns the role assignments of a subscription, those in it and those above it.
func roleAssignments(t *testing.T, ctx context.Context, token, subscription string) (all []roleAssignment) {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		status, body := azureResponse(t, ctx, token, http.MethodGet, region.Endpoints().Azure+path+"?api-version=2022-04-01", "")
		if err := json.Unmarshal([]byte(body), into); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", path, status, body, err)
		}
	}
	var list struct {
		Value []struct{ Properties roleAssignment }
	}
	get("/subscriptions/"+subscription+"/providers/Microsoft.Authorization/roleAssignments", &list)
	for _, a := range list.Value {
		var definition struct {
			Properties struct{ RoleName string }
		}
		get("/subscriptions/"+subscription+"/providers/Microsoft.Authorization/roleDefinitions/"+a.Properties.RoleDefinitionID[strings.LastIndex(a.Properties.RoleDefinitionID, "/")+1:], &definition)
		a.Properties.role = definition.Properties.RoleName
		all = append(all, a.Properties)
	}
	return all
}
