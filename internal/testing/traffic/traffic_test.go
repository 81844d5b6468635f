package traffic_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
)

const cluster = "/subscriptions/s/resourceGroups/g/providers/microsoft.redhatopenshift/hcpOpenShiftClusters/c"

// TestExchangesAreRecorded records the same requests on the client's and on the server's side, and checks the recordings.
func TestExchangesAreRecorded(t *testing.T) {
	for name, install := range map[string]func(*traffic.Recorder, http.Handler) (http.Handler, http.RoundTripper){
		"client": func(r *traffic.Recorder, h http.Handler) (http.Handler, http.RoundTripper) {
			return h, r.Transport(http.DefaultTransport)
		},
		"server": func(r *traffic.Recorder, h http.Handler) (http.Handler, http.RoundTripper) {
			return r.Handler(h), http.DefaultTransport
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(traffic.DirVariable, dir)
			recorder := must.Get(traffic.FromEnvironment("test"))(t)
			handler, transport := install(recorder, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); string(body) != `{"a":1}` {
					t.Errorf("the server received %q", body)
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, `{"kubeconfig":"first-secret","nested":[{"kubeconfig":"second-secret"}],"n":1.50}`)
			}))
			server := httptest.NewServer(handler)
			defer server.Close()
			client := &http.Client{Transport: transport}
			for _, path := range []string{cluster + "?api-version=1", cluster + "?api-version=1", "/tenant/oauth2/v2.0/token"} {
				put(t, client, server.URL+path)
			}
			must.Do(t, recorder.Close())
			check(t, dir)
		})
	}
}

func put(t *testing.T, client *http.Client, url string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(`{"a":1}`)))(t)
	request.Header.Set("Authorization", "Bearer token-secret")
	request.Header.Set("If-Match", "x")
	response := must.Get(client.Do(request))(t)
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); !strings.Contains(string(body), "first-secret") {
		t.Errorf("the client received %q", body)
	}
}

func check(t *testing.T, dir string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "test-*.jsonl"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	data := must.Get(os.ReadFile(files[0]))(t)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines, want one: the second exchange is equal and the third is not with the resource provider", len(lines))
	}
	if strings.Contains(lines[0], "secret") {
		t.Errorf("the recording contains a secret: %s", lines[0])
	}
	var got traffic.Exchange
	must.Do(t, json.Unmarshal([]byte(lines[0]), &got))
	want := traffic.Exchange{
		Request: traffic.Request{Method: "PUT", URL: "https://management.azure.com" + cluster + "?api-version=1", Body: map[string]any{"a": 1.0}},
		Response: traffic.Response{StatusCode: "202", Body: map[string]any{
			"kubeconfig": "redacted", "nested": []any{map[string]any{"kubeconfig": "redacted"}}, "n": 1.5,
		}},
	}
	if got.Request.Headers["if-match"] != "x" || got.Response.Headers["retry-after"] != "1" {
		t.Errorf("headers %v and %v", got.Request.Headers, got.Response.Headers)
	}
	got.Request.Headers, got.Response.Headers = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsRecordedWithoutFolder(t *testing.T) {
	t.Setenv(traffic.DirVariable, "")
	recorder, err := traffic.FromEnvironment("test")
	if err != nil || recorder != nil {
		t.Fatalf("%v, %v", recorder, err)
	}
	if recorder.Transport(http.DefaultTransport) != http.DefaultTransport {
		t.Error("the transport is wrapped although nothing is recorded")
	}
	if err := recorder.Close(); err != nil {
		t.Error(err)
	}
}
