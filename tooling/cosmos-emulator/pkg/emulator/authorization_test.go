package emulator_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// tokenAccount is an account without a key, with the containers a and b of the database db.
type tokenAccount struct {
	url    string
	issuer *entratest.Issuer
}

// openAccount starts an emulator whose only principals are those of assignments.
func openAccount(t testing.TB, definitions []account.RoleDefinition, assignments []account.RoleAssignment) *tokenAccount {
	t.Helper()
	issuer := must.Get(entratest.Start())(t)
	t.Cleanup(issuer.Close)
	container := func(name string) json.RawMessage {
		return json.RawMessage(`{"id":"` + name + `","partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2}}`)
	}
	s := must.Get(emulator.Open(emulator.Options{
		DataDir: t.TempDir(), Tokens: &entra.Verifier{Authority: issuer.Authority(), Tenant: entratest.Tenant, Client: http.DefaultClient},
		Account: account.Account{Name: "test", Databases: []account.Database{{Name: "db", Containers: []json.RawMessage{container("a"), container("b")}}},
			RoleDefinitions: definitions, RoleAssignments: assignments},
	}))(t)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tokenAccount{url: h.URL, issuer: issuer}
}

// container returns a client of a container for a credential. The client allows tokens over plain HTTP, which the emulator of a
// test serves.
func (a *tokenAccount) container(t testing.TB, credential azcore.TokenCredential, name string) *azcosmos.ContainerClient {
	t.Helper()
	client := must.Get(azcosmos.NewClient(a.url, credential, nil))(t)
	t.Cleanup(client.Close)
	return must.Get(client.NewContainer("db", name))(t)
}

// dataOperations are requests with the action that each needs. Each may be repeated. An operation that finds no item fails with
// 404, which shows that it was authorized.
var dataOperations = []struct {
	name   string
	action account.Action
	do     func(ctx context.Context, c *azcosmos.ContainerClient) error
}{
	{"read container", account.ReadMetadata, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.Read(ctx, nil)
		return err
	}},
	{"change feed", account.ReadChangeFeed, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}})
		return err
	}},
	{"create", account.CreateItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.CreateItem(ctx, pk("p"), []byte(`{"id":"i","partitionKey":"p"}`), nil)
		return err
	}},
	{"read", account.ReadItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.ReadItem(ctx, pk("p"), "none", nil)
		return err
	}},
	{"replace", account.ReplaceItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.ReplaceItem(ctx, pk("p"), "none", []byte(`{"id":"none","partitionKey":"p"}`), nil)
		return err
	}},
	{"upsert", account.UpsertItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.UpsertItem(ctx, pk("p"), []byte(`{"id":"u","partitionKey":"p"}`), nil)
		return err
	}},
	{"delete", account.DeleteItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.DeleteItem(ctx, pk("p"), "none", nil)
		return err
	}},
	{"query", account.ExecuteQuery, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		_, err := c.NewQueryItemsPager("SELECT * FROM c", pk("p"), nil).NextPage(ctx)
		return err
	}},
	{"batch that creates", account.CreateItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		b := c.NewTransactionalBatch(pk("p"))
		b.CreateItem([]byte(`{"id":"b","partitionKey":"p"}`), nil)
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		return err
	}},
	{"batch that upserts", account.UpsertItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		b := c.NewTransactionalBatch(pk("p"))
		b.UpsertItem([]byte(`{"id":"b","partitionKey":"p"}`), nil)
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		return err
	}},
	{"batch that deletes", account.DeleteItem, func(ctx context.Context, c *azcosmos.ContainerClient) error {
		b := c.NewTransactionalBatch(pk("p"))
		b.DeleteItem("none", nil)
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		return err
	}},
}

// TestDataActions executes each operation with a role of each single action, with the built-in roles, and with no role.
func TestDataActions(t *testing.T) {
	var definitions []account.RoleDefinition
	assignments := []account.RoleAssignment{
		{RoleDefinitionID: account.BuiltInDataReader, PrincipalID: "reader", Scope: "/"},
		{RoleDefinitionID: account.BuiltInDataContributor, PrincipalID: "contributor", Scope: "/"},
		{RoleDefinitionID: account.BuiltInDataContributor, PrincipalID: "contributor of b", Scope: "/dbs/db/colls/b"},
	}
	allowed := map[string][]account.Action{
		"nobody":           nil,
		"reader":           {account.ReadMetadata, account.ReadItem, account.ExecuteQuery, account.ReadChangeFeed},
		"contributor":      account.Actions(),
		"contributor of b": {},
	}
	for _, action := range account.Actions() {
		name := string(action[strings.LastIndexByte(string(action), '/')+1:])
		definitions = append(definitions, account.RoleDefinition{ID: name, DataActions: []string{string(action)}})
		assignments = append(assignments, account.RoleAssignment{RoleDefinitionID: name, PrincipalID: name, Scope: "/dbs/db/colls/a"})
		allowed[name] = []account.Action{action}
	}
	// Clients read the account before their first request.
	definitions = append(definitions, account.RoleDefinition{ID: "metadata", DataActions: []string{string(account.ReadMetadata)}})
	for principal, actions := range allowed {
		if principal != "nobody" {
			assignments = append(assignments, account.RoleAssignment{RoleDefinitionID: "metadata", PrincipalID: principal, Scope: "/"})
			allowed[principal] = append(actions, account.ReadMetadata)
		}
	}
	a := openAccount(t, definitions, assignments)
	for principal, actions := range allowed {
		t.Run(principal, func(t *testing.T) {
			c := a.container(t, a.issuer.Principal(principal), "a")
			for _, operation := range dataOperations {
				err := operation.do(t.Context(), c)
				var response *azcore.ResponseError
				if err != nil && !errors.As(err, &response) {
					t.Errorf("%s: %v", operation.name, err)
					continue
				}
				denied := response != nil && response.StatusCode == http.StatusForbidden
				if want := !slices.Contains(actions, operation.action); denied != want {
					t.Errorf("%s: denied is %t, want %t: %v", operation.name, denied, want, err)
				}
				if !denied {
					continue
				}
				// The first request of nobody's client reads the account.
				wantSub, wantAction, resource := "5302", operation.action, "dbs/db/colls/a"
				if principal == "nobody" {
					wantSub, wantAction, resource = "5301", account.ReadMetadata, "/"
				}
				message := fmt.Sprintf("Request blocked by Auth test : Request is blocked because principal [%s] does not have required RBAC permissions "+
					"to perform action [%s] on resource [%s]. Learn more: https://aka.ms/cosmos-native-rbac.", principal, wantAction, resource)
				if got := response.RawResponse.Header.Get("x-ms-substatus"); got != wantSub || !strings.Contains(response.Error(), message) {
					t.Errorf("%s: sub-status %s, want %s with %q: %v", operation.name, got, wantSub, message, response)
				}
			}
		})
	}
}

// request sends a request with a token and returns the status, followed by the sub-status if there is one.
func (a *tokenAccount) request(t testing.TB, token, method, path, body string, header http.Header) string {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body)))(t)
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+token))
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	must.Get(io.Copy(io.Discard, response.Body))(t)
	if sub := response.Header.Get("X-Ms-Substatus"); sub != "" {
		return fmt.Sprintf("%d/%s", response.StatusCode, sub)
	}
	return fmt.Sprint(response.StatusCode)
}

// TestTokensDoNotManageResources checks that even a contributor of the account can create no database or container with a token, and
// that principals without rights do not learn which ones exist.
func TestTokensDoNotManageResources(t *testing.T) {
	a := openAccount(t, nil, []account.RoleAssignment{{RoleDefinitionID: account.BuiltInDataContributor, PrincipalID: entratest.ObjectID, Scope: "/"}})
	token := must.Get(a.issuer.Token("https://cosmos.azure.com", time.Now().Add(time.Hour)))(t)
	unprivileged := must.Get(a.issuer.Sign(a.issuer.Claims("https://cosmos.azure.com", "unprivileged", time.Now().Add(time.Hour))))(t)
	for _, path := range []string{"/", "/dbs", "/dbs/db", "/dbs/db/colls", "/dbs/db/colls/a", "/dbs/db/colls/a/pkranges", "/dbs/none", "/dbs/db/colls/none"} {
		if got := a.request(t, unprivileged, http.MethodGet, path, "", nil); got != "403/5301" {
			t.Errorf("GET %s of a principal without rights: %s, want 403/5301", path, got)
		}
	}
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/dbs", "", "405"},
		{"GET", "/dbs/db/colls/a/pkranges", "", "200"},
		{"GET", "/dbs/db/colls/a", "", "200"},
		{"POST", "/dbs", `{"id":"new"}`, "403/5300"},
		{"DELETE", "/dbs/db", "", "403/5300"},
		{"POST", "/dbs/db/colls", `{"id":"new"}`, "403/5300"},
		{"PUT", "/dbs/db/colls/a", `{"id":"a"}`, "403/5300"},
		{"DELETE", "/dbs/db/colls/a", "", "403/5300"},
		{"GET", "/offers", "", "403/5300"},
		{"POST", "/dbs/db/users", `{"id":"u"}`, "403/5300"},
		{"POST", "/dbs/db/colls/a/sprocs/s", "[]", "403/5300"},
	} {
		if got := a.request(t, token, test.method, test.path, test.body, nil); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.method, test.path, got, test.want)
		}
	}
}

// TestTokensAreVerified checks the sub-status of each invalid token.
func TestTokensAreVerified(t *testing.T) {
	a := openAccount(t, nil, []account.RoleAssignment{{RoleDefinitionID: account.BuiltInDataReader, PrincipalID: entratest.ObjectID, Scope: "/"}})
	host := must.Get(url.Parse(a.url))(t)
	valid := a.issuer.Claims("http://"+host.Hostname(), entratest.ObjectID, time.Now().Add(time.Hour))
	sign := func(change func(c jwt.MapClaims)) string {
		claims := jwt.MapClaims{}
		for name, value := range valid {
			claims[name] = value
		}
		change(claims)
		return must.Get(a.issuer.Sign(claims))(t)
	}
	accepted := sign(func(jwt.MapClaims) {})
	for reason, test := range map[string]struct{ token, want string }{
		"for the account":            {accepted, "200"},
		"for all accounts":           {sign(func(c jwt.MapClaims) { c["aud"] = "https://cosmos.azure.com" }), "200"},
		"for Resource Manager":       {sign(func(c jwt.MapClaims) { c["aud"] = "https://management.azure.com" }), "401/5008"},
		"for another account":        {sign(func(c jwt.MapClaims) { c["aud"] = "https://other.documents.azure.com" }), "401/5008"},
		"of the customer's tenant":   {sign(func(c jwt.MapClaims) { c["tid"] = "11111111-0000-4000-8000-000000000001" }), "401/5007"},
		"expired":                    {sign(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), "401/5006"},
		"not valid yet":              {sign(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }), "401/5005"},
		"without a principal":        {sign(func(c jwt.MapClaims) { delete(c, "oid") }), "401/5011"},
		"not a JWT":                  {"x", "401/5003"},
		"with a changed payload":     {tampered(t, accepted), "401/5004"},
		"signed with the public key": {"e30.e30." + strings.TrimRight(emulator.WellKnownKey, "="), "401/5003"},
	} {
		if got := a.request(t, test.token, http.MethodGet, "/", "", nil); got != test.want {
			t.Errorf("%s: %s, want %s", reason, got, test.want)
		}
	}
	// The account has no key.
	response := send(t, a.url, emulator.WellKnownKey, http.MethodGet, "", "", "", nil)
	if response.StatusCode != http.StatusUnauthorized || response.Header.Get("X-Ms-Substatus") != "5202" {
		t.Errorf("the public key: %s, sub-status %s", response.Status, response.Header.Get("X-Ms-Substatus"))
	}
}

// tampered returns a token with another principal and the same signature.
func tampered(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	payload := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	changed := strings.Replace(string(payload), entratest.ObjectID, "another", 1)
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(changed)) + "." + parts[2]
}

// TestCachedTokensExpire checks that a token is refused after its end, also if it was verified before.
func TestCachedTokensExpire(t *testing.T) {
	issuer := must.Get(entratest.Start())(t)
	t.Cleanup(issuer.Close)
	now := time.Now()
	clock := func() time.Time { return now }
	s := must.Get(emulator.Open(emulator.Options{DataDir: t.TempDir(), Now: clock,
		Tokens:  &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient, Now: clock},
		Account: account.Account{RoleAssignments: []account.RoleAssignment{{RoleDefinitionID: account.BuiltInDataReader, PrincipalID: entratest.ObjectID, Scope: "/"}}}}))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	token := must.Get(issuer.Token("https://cosmos.azure.com", now.Add(10*time.Minute)))(t)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 200}, {9 * time.Minute, 200}, {10 * time.Minute, 401}} {
		now = now.Add(step.after)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig="+token))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != step.want {
			t.Errorf("after %s more: %d, want %d", step.after, w.Code, step.want)
		}
	}
}

// BenchmarkAuthentication compares a request that is authenticated by a cached token with one that is signed with the key. Both
// read the account's properties.
func BenchmarkAuthentication(b *testing.B) {
	issuer := must.Get(entratest.Start())(b)
	b.Cleanup(issuer.Close)
	s := must.Get(emulator.Open(emulator.Options{DataDir: b.TempDir(), Key: emulator.WellKnownKey,
		Tokens:  &entra.Verifier{Authority: issuer.Authority(), Client: http.DefaultClient},
		Account: account.Account{RoleAssignments: []account.RoleAssignment{{RoleDefinitionID: account.BuiltInDataReader, PrincipalID: entratest.ObjectID, Scope: "/"}}}}))(b)
	b.Cleanup(func() { _ = s.Close() })
	token := must.Get(issuer.Token("https://cosmos.azure.com", time.Now().Add(time.Hour)))(b)
	date := time.Now().UTC().Format(http.TimeFormat)
	for name, authorization := range map[string]string{
		"token": "type=aad&ver=1.0&sig=" + token,
		"key":   sign(b, emulator.WellKnownKey, http.MethodGet, "", "", date),
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", authorization)
			r.Header.Set("X-Ms-Date", date)
			for b.Loop() {
				w := httptest.NewRecorder()
				if s.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
