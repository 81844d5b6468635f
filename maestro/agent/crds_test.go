package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestCRDsAreInstalledAfterRefusals starts an agent while the API server has not read the roles yet, and so forbids everything.
func TestCRDsAreInstalledAfterRefusals(t *testing.T) {
	const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	const established = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
		"status":{"conditions":[{"type":"Established","status":"True"}]}}`
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, forbidden)
			return
		}
		_, _ = io.WriteString(w, established)
	}))
	defer server.Close()
	folder := t.TempDir()
	definition := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n"
	must.Do(t, os.WriteFile(filepath.Join(folder, "things.yaml"), []byte(definition), 0o600))
	if err := installCRDs(t.Context(), &rest.Config{Host: server.URL}, folder, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want one that is refused and one that is not", n)
	}
}
