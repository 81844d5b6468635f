package graph_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/update-graph/pkg/graph"
)

func serve(t *testing.T) (*graph.Handler, string) {
	t.Helper()
	catalogue := must.Get(release.Default())(t)
	handler := graph.New(catalogue, prometheus.NewRegistry())
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return handler, server.URL
}

func get(t *testing.T, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	request.Header = header
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	body := must.Get(io.ReadAll(response.Body))(t)
	return response, string(body)
}

func TestRequests(t *testing.T) {
	_, url := serve(t)
	const v1 = "/api/upgrades_info/v1/graph"
	tests := map[string]struct {
		reason, path, accept string
		status               int
		contains             string
	}{
		"A channel":          {"the request of OpenShift's clients", v1 + "?channel=stable-4.21&arch=amd64&version=4.20.8&id=8b1f5b39-5b1c-4a4c-9d70-0b9a2a5c7f10", "application/json", 200, `"version":"4.21.4"`},
		"Without a version":  {"the older path", "/api/upgrades_info/graph?channel=stable-4.21", "application/json", 200, `"conditionalEdges":[{"edges":[{"from":"4.20.8","to":"4.21.1"}]`},
		"Multi":              {"a payload for all architectures", v1 + "?channel=stable-4.22&arch=multi", "", 200, `"version":"4.22.2"`},
		"Unknown channel":    {"no release is in it", v1 + "?channel=stable-9.9", "", 200, `{"version":1,"nodes":[],"edges":[],"conditionalEdges":[]}`},
		"Any media type":     {"a browser", v1 + "?channel=stable-4.21", "text/html, */*;q=0.8", 200, `"nodes"`},
		"No channel":         {"channel is required", v1 + "?arch=amd64", "application/json", 400, `{"kind":"missing_params","value":"mandatory client parameters missing: channel"}`},
		"Malformed channel":  {"not a channel name", v1 + "?channel=a%20b", "", 400, `"invalid_params"`},
		"Unknown arch":       {"no release has a payload for it", v1 + "?channel=stable-4.21&arch=vax", "", 400, `client parameters: arch`},
		"Malformed version":  {"not a version", v1 + "?channel=stable-4.21&version=latest", "", 400, `client parameters: version`},
		"Malformed id":       {"not a UUID", v1 + "?channel=stable-4.21&id=me", "", 400, `client parameters: id`},
		"Another media type": {"only JSON is served", v1 + "?channel=stable-4.21", "text/html", 406, `"invalid_content_type"`},
		"Another path":       {"no such path", "/api/upgrades_info/v2/graph?channel=stable-4.21", "", 404, ``},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if tc.accept != "" {
				header.Set("Accept", tc.accept)
			}
			response, body := get(t, url+tc.path, header)
			if response.StatusCode != tc.status || !strings.Contains(body, tc.contains) {
				t.Errorf("%s: %d %s, want %d with %s", tc.reason, response.StatusCode, body, tc.status, tc.contains)
			}
		})
	}
}

func TestUnchangedGraphIsNotSentAgain(t *testing.T) {
	handler, url := serve(t)
	path := url + "/api/upgrades_info/v1/graph?channel=stable-4.21"
	first, _ := get(t, path, http.Header{})
	tag := first.Header.Get("ETag")
	if again, body := get(t, path, http.Header{"If-None-Match": {tag}}); again.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("second request: %d %s", again.StatusCode, body)
	}
	other := must.Get(release.Parse([]byte("repository: r\nreleases: [{version: 4.21.9, digest: 'sha256:" + strings.Repeat("a", 64) + "', channels: [stable-4.21]}]")))(t)
	handler.Replace(other)
	if changed, body := get(t, path, http.Header{"If-None-Match": {tag}}); changed.StatusCode != http.StatusOK || !strings.Contains(body, "4.21.9") {
		t.Errorf("after the catalogue changed: %d %s", changed.StatusCode, body)
	}
}

// TestFollowServesChangedFiles changes the file, also to invalid content, which must change nothing.
func TestFollowServesChangedFiles(t *testing.T) {
	handler, url := serve(t)
	file := filepath.Join(t.TempDir(), "releases.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { handler.Follow(ctx, file, time.Millisecond, slog.New(slog.DiscardHandler)) })
	defer group.Wait()
	defer cancel()
	await := func(version string) {
		t.Helper()
		eventually.Soon(t, version+" is served", func() error {
			_, body := get(t, url+"/api/upgrades_info/v1/graph?channel=stable-4.21", http.Header{})
			if !strings.Contains(body, version) {
				return errors.New(body)
			}
			return nil
		})
	}
	write := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	catalogue := func(version string) string {
		return "repository: r\nreleases: [{version: " + version + ", digest: 'sha256:" + strings.Repeat("a", 64) + "', channels: [stable-4.21]}]"
	}
	await("4.21.4")
	write(catalogue("4.21.8"))
	await("4.21.8")
	write("releases: [")
	write(catalogue("4.21.9"))
	await("4.21.9")
}
