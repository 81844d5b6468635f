package frontdoor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

const (
	tenant       = "22222222-2222-2222-2222-222222222222"
	subscription = "33333333-3333-3333-3333-333333333333"
	apiVersion   = "2026-09-01-preview"

	providerAudience = "https://provider.example"
)

// armClient is the client that identifies ARM to the provider.
var armClient = token.Client{TenantID: "55555555-5555-5555-5555-555555555555", ClientID: "arm", ClientSecret: "arm-secret", ObjectID: "arm-object", Name: "ARM"}

// environment is a FrontDoor with a fake provider and a client.
type environment struct {
	provider  *provider
	server    *httptest.Server
	frontDoor *FrontDoor
	issuer    *token.Issuer
	directory *Directory
	client    *http.Client
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	dir := t.TempDir()
	authority := must.Get(mesh.OpenAuthority(filepath.Join(dir, "ca"), "test"))(t)
	identities := map[mesh.Peer]*mesh.Identity{}
	for _, peer := range []mesh.Peer{mesh.Frontend, mesh.ARMFrontDoor} {
		must.Do(t, authority.Issue(filepath.Join(dir, string(peer)), peer, "127.0.0.1"))
		identities[peer] = must.Get(mesh.LoadIdentity(filepath.Join(dir, string(peer))))(t)
	}
	h := &environment{provider: newProvider(t, identities[mesh.Frontend].ServerTLS(mesh.NewAuthorizer(mesh.Frontend, mesh.Rules(), nil).Clients()...))}
	h.server = httptest.NewUnstartedServer(nil)
	h.server.EnableHTTP2 = true
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	h.client = h.server.Client()
	h.issuer = must.Get(token.NewIssuer(h.server.URL, dir, []token.Client{
		{TenantID: tenant, ClientID: "client", ClientSecret: "secret", ObjectID: "object", Name: "dev@test"}, armClient,
	}, providerAudience))(t)
	h.directory = must.Get(OpenDirectory(filepath.Join(dir, "directory.json")))(t)
	h.startFrontDoor(t, identities[mesh.ARMFrontDoor].ClientTLS(mesh.Frontend))
	return h
}

func (h *environment) startFrontDoor(t *testing.T, frontendTLS *tls.Config) {
	t.Helper()
	door := must.Get(New(Options{
		PublicURL: h.server.URL, Location: "westus3", APIVersions: []string{apiVersion},
		Frontend: strings.TrimPrefix(h.provider.URL, "http://"), FrontendTLS: frontendTLS,
		Tokens: h.issuer, ARMClient: &armClient, ProviderAudience: providerAudience, Directory: h.directory, Log: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(door.Close)
	h.frontDoor, h.server.Config.Handler = door, door
}

// GetToken implements azcore.TokenCredential with tokens of the front door.
func (h *environment) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"client"}, "client_secret": {"secret"}, "scope": options.Scopes}
	response, err := h.client.PostForm(h.server.URL+"/"+tenant+"/oauth2/v2.0/token", form)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	defer response.Body.Close()
	var body struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return azcore.AccessToken{}, err
	}
	return azcore.AccessToken{Token: body.AccessToken, ExpiresOn: time.Now().Add(time.Duration(body.ExpiresIn) * time.Second)}, nil
}

func (h *environment) options() *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: policy.ClientOptions{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: h.server.URL, Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: h.server.URL, Audience: "https://management.azure.com"},
		}},
		Transport: h.client,
	}}
}

// do sends a request with a token and returns the status and the decoded body.
// asARM returns the header of requests of the client that identifies ARM.
func (h *environment) asARM(t *testing.T) http.Header {
	t.Helper()
	text := must.Get(h.issuer.Issue(armClient.TenantID, armClient.ClientID, armClient.ClientSecret, "https://management.azure.com/.default"))(t)
	return http.Header{"Authorization": {"Bearer " + text}}
}

func (h *environment) do(t *testing.T, method, path string, header http.Header, body any) (*http.Response, map[string]any) {
	t.Helper()
	data := must.Get(json.Marshal(body))(t)
	request := must.Get(http.NewRequestWithContext(t.Context(), method, h.server.URL+path, bytes.NewReader(data)))(t)
	request.Header.Set("Content-Type", "application/json")
	if header.Get("Authorization") == "" {
		text := must.Get(h.issuer.Issue(tenant, "client", "secret", "https://management.azure.com/.default"))(t)
		request.Header.Set("Authorization", "Bearer "+text)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response := must.Get(h.client.Do(request))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	decoded := map[string]any{}
	if len(text) > 0 && text[0] == '{' {
		must.Do(t, json.Unmarshal(text, &decoded))
	}
	return response, decoded
}

// createGroup creates a registered subscription with a resource group.
func (h *environment) createGroup(t *testing.T) {
	t.Helper()
	for _, step := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, "/subscriptions/" + subscription + "?api-version=2022-12-01", map[string]string{"displayName": "test"}},
		{http.MethodPost, "/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift/register?api-version=2021-04-01", nil},
		{http.MethodPut, "/subscriptions/" + subscription + "/resourcegroups/Group?api-version=2021-04-01", map[string]string{"location": "West US 3"}},
	} {
		if response, body := h.do(t, step.method, step.path, nil, step.body); response.StatusCode > 201 {
			t.Fatalf("%s %s: %d %v", step.method, step.path, response.StatusCode, body)
		}
	}
}

func clusterID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

func TestAzureSDKWorksUnchanged(t *testing.T) {
	h := newEnvironment(t)
	ctx := t.Context()
	if response, _ := h.do(t, http.MethodPut, "/subscriptions/"+subscription+"?api-version=2022-12-01", nil, map[string]string{}); response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	groups := must.Get(armresources.NewResourceGroupsClient(subscription, h, h.options()))(t)
	location := "westus3"
	must.Get(groups.CreateOrUpdate(ctx, "group", armresources.ResourceGroup{Location: &location}, nil))(t)
	client := must.Get(armresources.NewClient(subscription, h, h.options()))(t)
	pollOptions := &runtime.PollUntilDoneOptions{Frequency: time.Millisecond}

	// The subscription is not registered. The SDK's pipeline registers it and retries the request.
	for _, name := range []string{"one", "two"} {
		poller := must.Get(client.BeginCreateOrUpdateByID(ctx, clusterID(name), apiVersion, armresources.GenericResource{Location: &location, Properties: map[string]any{"version": map[string]any{"id": "4.20"}}}, nil))(t)
		created := must.Get(poller.PollUntilDone(ctx, pollOptions))(t)
		if properties := created.Properties.(map[string]any); *created.Name != name || properties["provisioningState"] != "Succeeded" {
			t.Errorf("created %s with %v", *created.Name, properties)
		}
	}
	if state := h.provider.subscriptions["/subscriptions/"+subscription]["state"]; state != "Registered" {
		t.Errorf("the provider was notified of state %v", state)
	}
	if _, err := client.GetByID(ctx, clusterID("one"), apiVersion, nil); err != nil {
		t.Error(err)
	}
	var names []string
	for pager := client.NewListByResourceGroupPager("group", nil); pager.More(); {
		page := must.Get(pager.NextPage(ctx))(t)
		for _, resource := range page.Value {
			names = append(names, *resource.Name)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"one", "two", "workers", "workers"}, names); diff != "" {
		t.Errorf("the group's resources (-want +got):\n%s", diff)
	}
	filter := "resourceType eq 'Microsoft.RedHatOpenShift/hcpOpenShiftClusters'"
	page, err := client.NewListPager(&armresources.ClientListOptions{Filter: &filter}).NextPage(ctx)
	if err != nil || len(page.Value) != 2 {
		t.Errorf("the subscription's clusters: %d, %v", len(page.Value), err)
	}
	deleting := must.Get(client.BeginDeleteByID(ctx, clusterID("one"), apiVersion, nil))(t)
	must.Get(deleting.PollUntilDone(ctx, pollOptions))(t)
	var missing *azcore.ResponseError
	if _, err := client.GetByID(ctx, clusterID("one"), apiVersion, nil); !errors.As(err, &missing) || missing.ErrorCode != "ResourceNotFound" {
		t.Errorf("GET after the deletion: %v", err)
	}

	// The deletion of the group deletes its clusters.
	deletingGroup := must.Get(groups.BeginDelete(ctx, "group", nil))(t)
	completeOperations(ctx, t, h)
	must.Get(deletingGroup.PollUntilDone(ctx, pollOptions))(t)
	if len(h.provider.clusters) > 0 {
		t.Errorf("the group was deleted before its clusters: %v", h.provider.clusters)
	}
	if exists, err := groups.CheckExistence(ctx, "group", nil); err != nil || exists.Success {
		t.Errorf("the group still exists: %v", err)
	}
}

// completeOperations completes the provider's operations until there are no clusters. ARM does not poll the operations
// that a deletion of a group starts.
func completeOperations(ctx context.Context, t *testing.T, h *environment) {
	t.Helper()
	eventually.Before(ctx, t, "all clusters are deleted", func() error {
		h.provider.mu.Lock()
		defer h.provider.mu.Unlock()
		for _, operation := range h.provider.operations {
			if operation.polls > 0 {
				operation.polls = 0
				operation.complete()
			}
		}
		if n := len(h.provider.clusters); n > 0 {
			return fmt.Errorf("%d clusters remain", n)
		}
		return nil
	})
}

func TestReservedHeadersAreReplaced(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	forged := http.Header{}
	for _, name := range []string{"X-Ms-Arm-Resource-System-Data", "X-Ms-Client-Tenant-Id", "X-Ms-Client-Object-Id", "X-Ms-Home-Tenant-Id", "X-Ms-Identity-Url",
		"X-Ms-Client-Principal-Name", "X-Ms-Arm-Signed-User-Token", "Referer", "X-Forwarded-Host", "X-Forwarded-For", "Azure-Asyncnotificationuri",
		"Traceparent", "Tracestate", "Baggage"} {
		forged.Set(name, "forged")
	}
	forged.Set("X-Ms-Client-Request-Id", "client-request")
	forged.Set("X-Ms-Correlation-Request-Id", "44444444-4444-4444-4444-444444444444")
	path := clusterID("one") + "?api-version=" + apiVersion
	response, _ := h.do(t, http.MethodPut, path, forged, map[string]any{"location": "westus3"})
	if response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	header := h.provider.lastRequest(t, http.MethodPut).Header
	for name, values := range header {
		if slices.Contains(values, "forged") {
			t.Errorf("the provider received %s: %v", name, values)
		}
	}
	for name, want := range map[string]string{
		"X-Ms-Client-Tenant-Id":       tenant,
		"X-Ms-Home-Tenant-Id":         tenant,
		"X-Ms-Client-Object-Id":       "object",
		"X-Ms-Client-Principal-Name":  "dev@test",
		"X-Ms-Client-Request-Id":      "client-request",
		"X-Ms-Correlation-Request-Id": "44444444-4444-4444-4444-444444444444",
		"Referer":                     h.server.URL + path,
		"X-Forwarded-Host":            strings.TrimPrefix(h.server.URL, "https://"),
		"X-Forwarded-Proto":           "https",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var data map[string]string
	if err := json.Unmarshal([]byte(header.Get("X-Ms-Arm-Resource-System-Data")), &data); err != nil || data["createdBy"] != "dev@test" || data["createdByType"] != "User" {
		t.Errorf("system data: %v, %v", data, err)
	}
	if _, err := time.Parse(time.RFC3339Nano, data["createdAt"]); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(header.Get("X-Ms-Identity-Url"), "https://") {
		t.Errorf("identity URL: %q", header.Get("X-Ms-Identity-Url"))
	}

	// Responses are unchanged.
	got, body := h.do(t, http.MethodGet, path, nil, nil)
	if got.Header.Get("ETag") != `"1"` || body["name"] != "one" {
		t.Errorf("response %v with headers %v", body, got.Header)
	}
	if header := h.provider.lastRequest(t, http.MethodGet).Header; header.Get("X-Ms-Arm-Resource-System-Data") != "" {
		t.Error("a GET has system data")
	}
}

func TestErrorsOfARM(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	const unregistered = "55555555-5555-5555-5555-555555555555"
	if response, _ := h.do(t, http.MethodPut, "/subscriptions/"+unregistered+"?api-version=2022-12-01", nil, map[string]string{}); response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	clusters := "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	foreignToken := func() string {
		// A token with another key is rejected in the same way as an expired one.
		other := must.Get(token.NewIssuer(h.server.URL, t.TempDir(), []token.Client{{TenantID: tenant, ClientID: "client", ClientSecret: "secret"}}))(t)
		return must.Get(other.Issue(tenant, "client", "secret", "https://management.azure.com/.default"))(t)
	}
	tests := map[string]struct {
		reason       string
		method, path string
		header       http.Header
		status       int
		code         string
	}{
		"no token":        {"a token is required", "GET", "/subscriptions?api-version=1", http.Header{"Authorization": {"none"}}, 401, "AuthenticationFailed"},
		"foreign token":   {"only tokens of the issuer are accepted", "GET", "/subscriptions?api-version=1", http.Header{"Authorization": {"Bearer " + foreignToken()}}, 401, "InvalidAuthenticationToken"},
		"no version":      {"ARM requires an api-version", "GET", "/subscriptions", nil, 400, "MissingApiVersionParameter"},
		"unknown path":    {"the path does not exist", "GET", "/nothing?api-version=1", nil, 404, "NotFound"},
		"no subscription": {"the subscription must exist", "GET", "/subscriptions/unknown" + clusters + "?api-version=1", nil, 404, "SubscriptionNotFound"},
		"not registered":  {"the SDK registers the provider after this code", "GET", "/subscriptions/" + unregistered + clusters + "?api-version=1", nil, 409, "MissingSubscriptionRegistration"},
		"no group":        {"the group of a resource must exist", "PUT", "/subscriptions/" + subscription + "/resourceGroups/nowhere" + clusters + "/a?api-version=1", nil, 404, "ResourceGroupNotFound"},
		"other provider":  {"only one provider is emulated", "GET", "/subscriptions/" + subscription + "/providers/Microsoft.Compute/virtualMachines?api-version=1", nil, 404, "NotFound"},
		"bad filter":      {"unsupported filters are rejected, not ignored", "GET", "/subscriptions/" + subscription + "/resources?api-version=1&$filter=tagName+eq+'a'", nil, 400, "InvalidFilterInQueryString"},
		"group without location": {"ARM requires a location", "PUT", "/subscriptions/" + subscription + "/resourceGroups/new?api-version=1", nil, 400,
			"LocationRequired"},
		"wrong method": {"the path does not support the method", "DELETE", "/subscriptions/" + subscription + "/providers?api-version=1", nil, 405, "MethodNotAllowed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			response, body := h.do(t, test.method, test.path, test.header, map[string]any{})
			problem, _ := body["error"].(map[string]any)
			if response.StatusCode != test.status || problem["code"] != test.code {
				t.Errorf("%d %v, want %d %s: %s", response.StatusCode, body, test.status, test.code, test.reason)
			}
			if test.status == 401 && !strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("WWW-Authenticate: %q", response.Header.Get("WWW-Authenticate"))
			}
		})
	}

	h.provider.Close()
	response, body := h.do(t, http.MethodGet, clusterID("one")+"?api-version="+apiVersion, nil, nil)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("with an unreachable provider: %d %v", response.StatusCode, body)
	}
}

func TestDirectoryIsPersistent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "directory.json")
	first := must.Get(OpenDirectory(path))(t)
	want := must.Get(first.Update("ABC", func(s *Subscription) error {
		s.TenantID, s.Provider = tenant, Registered
		s.Groups["g"] = &Group{Name: "G", Location: "westus3", Deleting: true}
		return nil
	}))(t)
	if _, err := first.Update("abc", func(s *Subscription) error {
		s.Groups = nil
		return errors.New("rejected")
	}); err == nil {
		t.Error("Update returned no error for a rejected change")
	}
	second := must.Get(OpenDirectory(path))(t)
	got, ok := second.Subscription("aBc")
	if !ok {
		t.Fatal("the subscription is not in the reopened directory")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reopened directory (-want +got):\n%s", diff)
	}
}
