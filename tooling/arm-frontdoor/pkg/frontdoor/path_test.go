package frontdoor

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func FuzzParsePath(f *testing.F) {
	f.Add("/subscriptions/a/resourceGroups/b/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c")
	f.Add("/SUBSCRIPTIONS/a/providers/microsoft.redhatopenshift/locations/x")
	f.Add("//subscriptions//")
	f.Add("/\u017fubscriptions/a/resourceGroups/b")
	f.Add("/subscriptions/a/re\u017fourceGroups/b")
	f.Add("/subscriptions/a/providers/Micro\u017foft.RedHatOpenShift/hcpOpenShiftClusters/c")
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePath(text)
		if !ok {
			return
		}
		if strings.Contains(p.subscription, "/") || strings.Contains(p.group, "/") {
			t.Errorf("parsePath(%q) = %+v", text, p)
		}
		keywords := []string{"subscriptions/"}
		if p.group != "" {
			keywords = append(keywords, "/resourcegroups/")
		}
		if p.isProviderResource() {
			keywords = append(keywords, "/providers/microsoft.redhatopenshift/")
		}
		for _, keyword := range keywords {
			if !strings.Contains(asciifold.Lower(text), keyword) {
				t.Errorf("parsePath(%q) = %+v, and the path has no %s", text, p, keyword)
			}
		}
	})
}

func TestUnauthenticatedPaths(t *testing.T) {
	h := newEnvironment(t)
	for path, want := range map[string]string{
		"/metadata/endpoints?api-version=2015-01-01":                  "https://management.azure.com/",
		"/metadata/endpoints?api-version=2022-09-01":                  h.server.URL,
		"/" + tenant + "/v2.0/.well-known/openid-configuration":       h.server.URL + "/" + tenant + "/oauth2/v2.0/token",
		"/" + tenant + "/discovery/v2.0/keys":                         `"kty":"RSA"`,
		"/providers/Microsoft.RedHatOpenShift?api-version=2021-04-01": "",
	} {
		response := must.Get(h.client.Get(h.server.URL + path))(t)
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if response.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s without a token: %d", path, response.StatusCode)
			}
			continue
		}
		if response.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s, want %q in the body", path, response.StatusCode, text, want)
		}
	}
	// Microsoft's client libraries add the scopes of OpenID Connect to every request.
	for _, scope := range []string{"https://management.azure.com/.default openid offline_access profile", "https://vault.azure.net/.default", "https://storage.azure.com/.default openid"} {
		form := url.Values{"grant_type": {"client_credentials"}, "client_id": {"client"}, "client_secret": {"secret"}, "scope": {scope}}
		response := must.Get(h.client.PostForm(h.server.URL+"/"+tenant+"/oauth2/v2.0/token", form))(t)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("scope %q: %s", scope, response.Status)
		}
	}
	for name, form := range map[string]url.Values{
		"invalid_client":         {"grant_type": {"client_credentials"}, "client_id": {"client"}, "client_secret": {"wrong"}, "scope": {"https://management.azure.com/.default"}},
		"invalid_scope":          {"grant_type": {"client_credentials"}, "client_id": {"client"}, "client_secret": {"secret"}, "scope": {"https://graph.microsoft.com/.default"}},
		"unsupported_grant_type": {"grant_type": {"password"}},
	} {
		response := must.Get(h.client.PostForm(h.server.URL+"/"+tenant+"/oauth2/v2.0/token", form))(t)
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK || !strings.Contains(string(text), name) {
			t.Errorf("%v: %d %s, want %s", form, response.StatusCode, text, name)
		}
	}
}

// TestResponsesHaveIDsOnce checks that no ID header is duplicated, because some clients join duplicates into one value.
func TestResponsesHaveIDsOnce(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	const correlation = "66666666-6666-6666-6666-666666666666"
	for path, byProvider := range map[string]bool{
		clusterID("one") + "?api-version=" + apiVersion:               true,
		"/subscriptions/" + subscription + "?api-version=2022-12-01":  false,
		"/subscriptions/" + subscription + "/nowhere?api-version=1":   false,
		"/subscriptions/" + subscription + "/resourceGroups/nowhere/": false,
	} {
		response, body := h.do(t, http.MethodGet, path, http.Header{"X-Ms-Correlation-Request-Id": {correlation}}, nil)
		ids, correlations := response.Header.Values("X-Ms-Request-Id"), response.Header.Values("X-Ms-Correlation-Request-Id")
		if len(ids) != 1 || (ids[0] == "provider-request") != byProvider || len(correlations) != 1 || correlations[0] != correlation {
			t.Errorf("%s: %d with request IDs %q and correlation IDs %q: %v", path, response.StatusCode, ids, correlations, body)
		}
	}
	response, _ := h.do(t, http.MethodGet, "/subscriptions?api-version=2022-12-01", http.Header{"Authorization": {"none"}}, nil)
	if response.Header.Get("X-Ms-Request-Id") == "" {
		t.Errorf("%s without a request ID", response.Status)
	}
}

// TestMissingAPIVersion checks that ARM rejects requests without an api-version, and that the provider does so for its
// own paths.
func TestMissingAPIVersion(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	for path, byProvider := range map[string]bool{
		clusterID("one"): true,
		"/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters?API-VERSION=x": true,
		"/providers/microsoft.redhatopenshift/operations":                                                            true,
		"/providers/Microsoft.RedHatOpenShift":                                                                       false,
		"/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift/register":                           false,
		"/subscriptions/" + subscription + "/resourceGroups/group":                                                   false,
	} {
		response, body := h.do(t, http.MethodGet, path, nil, nil)
		if response.Header.Get("X-Ms-Request-Id") == "provider-request" != byProvider || (response.Header.Get("X-Ms-Error-Code") == "MissingApiVersionParameter") == byProvider {
			t.Errorf("%s: %d %v", path, response.StatusCode, body)
		}
	}
}

// TestGroupDeletionInDeletedSubscription checks that the deletion of a group completes although the provider rejects
// requests in the subscription.
func TestGroupDeletionInDeletedSubscription(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	group := "/subscriptions/" + subscription + "/resourcegroups/group?api-version=2021-04-01"
	for _, step := range []struct {
		method, path string
		body         any
		status       int
	}{
		{http.MethodPut, clusterID("one") + "?api-version=" + apiVersion, map[string]any{"location": "westus3"}, http.StatusCreated},
		{http.MethodPut, "/subscriptions/" + subscription + "?api-version=2022-12-01", map[string]string{"state": "Deleted"}, http.StatusOK},
		{http.MethodGet, clusterID("one") + "?api-version=" + apiVersion, nil, http.StatusBadRequest},
		{http.MethodDelete, group, nil, http.StatusAccepted},
	} {
		var header http.Header
		if body, ok := step.body.(map[string]string); ok && body["state"] != "" {
			header = h.asARM(t)
		}
		if response, body := h.do(t, step.method, step.path, header, step.body); response.StatusCode != step.status {
			t.Fatalf("%s %s: %d %v", step.method, step.path, response.StatusCode, body)
		}
	}
	eventually.Soon(t, "the group is deleted", func() error {
		if response, _ := h.do(t, http.MethodGet, group, nil, nil); response.StatusCode != http.StatusNotFound {
			return errors.New(response.Status)
		}
		return nil
	})

}

// TestDuplicateLeadingSlashIsRemoved sends a path with two leading slashes, as the SDK for JavaScript does.
func TestDuplicateLeadingSlashIsRemoved(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	path := clusterID("one") + "?api-version=" + apiVersion
	response, _ := h.do(t, http.MethodPut, "/"+path, nil, map[string]any{"location": "westus3"})
	if response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	got := h.provider.lastRequest(t, http.MethodPut)
	if got.URL.Path != clusterID("one") || got.Header.Get("Referer") != h.server.URL+path {
		t.Errorf("the provider received the path %s and the Referer %s", got.URL.Path, got.Header.Get("Referer"))
	}
}
