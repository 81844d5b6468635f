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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// serve returns a client of a simulated Maestro with a number of bundles, some of them malformed. It counts the requested pages.
func serve(t *testing.T, bundles int, pages *atomic.Int32, malformed ...int) *maestro.Client {
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
				item := map[string]any{"id": fmt.Sprint(i)}
				if slices.Contains(malformed, i) {
					item["version"] = "1"
				}
				items = append(items, item)
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
		_, err := client.EachPage(t.Context(), func(page []adminv1.Orphan) error {
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
	if _, err := serve(t, 1000, &pages).EachPage(t.Context(), func([]adminv1.Orphan) error { return enough }); !errors.Is(err, enough) || pages.Load() != 1 {
		t.Errorf("after %d pages: %v", pages.Load(), err)
	}
}

// TestMalformedBundleHidesNoOther checks that the bundles beside malformed ones and the pages after them are read, and that the malformed ones are named.
func TestMalformedBundleHidesNoOther(t *testing.T) {
	var pages atomic.Int32
	seen := 0
	ignored, err := serve(t, 450, &pages, 3, 199, 200, 449).EachPage(t.Context(), func(page []adminv1.Orphan) error {
		seen += len(page)
		return nil
	})
	if err != nil || seen != 446 || pages.Load() != 3 || ignored.Count != 4 || !strings.HasPrefix(ignored.Reasons[1], `items[199] "199": `) {
		t.Errorf("%d bundles in %d pages, without %v: %v", seen, pages.Load(), ignored, err)
	}
}
