package maestro_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// serve returns a client of a simulated Maestro with a number of bundles. It counts the requested pages.
func serve(t *testing.T, bundles int, pages *atomic.Int32) *maestro.Client {
	t.Helper()
	authority, err := mesh.OpenAuthority(t.TempDir(), "local")
	if err != nil {
		t.Fatal(err)
	}
	identity := func(peer mesh.Peer) *mesh.Identity {
		dir := filepath.Join(t.TempDir(), string(peer))
		if err := authority.Issue(dir, peer, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
		identity, err := mesh.LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		return identity
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: tls.NewListener(listener, identity(mesh.MaestroServer).ServerTLS(mesh.Admin)), Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pages.Add(1)
			query := r.URL.Query()
			page, _ := strconv.Atoi(query.Get("page"))
			size, _ := strconv.Atoi(query.Get("size"))
			if query.Get("search") != "source = 'cluster-service'" || query.Get("orderBy") != "id" || page < 1 || size < 1 {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			items := []map[string]any{}
			for i := (page - 1) * size; i < min(page*size, bundles); i++ {
				items = append(items, map[string]any{"id": fmt.Sprint(i)})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
		}),
	}}
	server.Start()
	client := maestro.New("https://"+listener.Addr().String(), identity(mesh.Admin))
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// TestEachPageReadsEachBundleOnce checks that bundles are read page by page, each once, and that reading stops at an error.
func TestEachPageReadsEachBundleOnce(t *testing.T) {
	for _, bundles := range []int{0, 1, 200, 450} {
		var pages atomic.Int32
		seen := 0
		client := serve(t, bundles, &pages)
		err := client.EachPage(t.Context(), func(page []maestro.Bundle) error {
			for _, b := range page {
				if b.ID != fmt.Sprint(seen) {
					t.Fatalf("bundle %s came as number %d", b.ID, seen)
				}
				seen++
			}
			return nil
		})
		if err != nil || seen != bundles || int(pages.Load()) != bundles/200+1 {
			t.Errorf("%d of %d bundles in %d pages, %v", seen, bundles, pages.Load(), err)
		}
	}
	var pages atomic.Int32
	enough := errors.New("enough")
	if err := serve(t, 1000, &pages).EachPage(t.Context(), func([]maestro.Bundle) error { return enough }); !errors.Is(err, enough) || pages.Load() != 1 {
		t.Errorf("after %d pages: %v", pages.Load(), err)
	}
}
