package updategraph

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// memory is a Store in memory.
type memory struct {
	mu         sync.Mutex
	graphs     map[string][]byte
	signatures map[string][]byte
}

func (m *memory) ReleaseSignatures(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.signatures), nil
}

func (m *memory) SaveReleaseSignatures(_ context.Context, signatures map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.signatures = maps.Clone(signatures)
	return nil
}

func (m *memory) UpdateGraphs(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.graphs), nil
}

func (m *memory) SaveUpdateGraphs(_ context.Context, graphs map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.graphs = maps.Clone(graphs)
	return nil
}

// service serves the graphs of a catalogue. It returns errors while it is unavailable.
type service struct {
	mu          sync.Mutex
	catalog     *release.Catalog
	unavailable bool
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	channel := r.URL.Query().Get("channel")
	if s.unavailable {
		http.Error(w, "unavailable", http.StatusBadGateway)
		return
	}
	body, _ := json.Marshal(s.catalog.Graph(channel, r.URL.Query().Get("arch")))
	_, _ = w.Write(body)
}

func (s *service) set(unavailable bool, catalog *release.Catalog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unavailable, s.catalog = unavailable, catalog
}

func parse(t *testing.T, releases ...string) *release.Catalog {
	t.Helper()
	text := "repository: r\nreleases:\n"
	for i, r := range releases {
		version, channels, _ := strings.Cut(r, " ")
		text += "- {version: " + version + ", digest: 'sha256:" + strings.Repeat(string(rune('a'+i)), 64) + "', channels: [" + channels + "]}\n"
	}
	catalog, err := release.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

func source(t *testing.T, url string, store Store, catalog *release.Catalog) *Source {
	t.Helper()
	publisher := newPublisher(t)
	publisher.sign(t, "4.20.1", "4.21.1", "4.22.0")
	return publisher.source(t, url, store, catalog)
}

// run runs the source until stop is called.
func run(t *testing.T, s *Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	return func() { cancel(); group.Wait() }
}

func await(t *testing.T, s *Source, version string) {
	t.Helper()
	eventually.Soon(t, version+" is known", func() error {
		if _, known := s.Catalog().Exact(version); !known {
			return errors.New("it is not in the catalogue")
		}
		return nil
	})

}

func TestSource(t *testing.T) {
	first := parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21, stable-4.22, fast-4.21")
	second := parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21, stable-4.22, fast-4.21", "4.22.0 stable-4.22, fast-4.22")
	given := parse(t, "4.20.1 stable-4.20")
	graphs, store := &service{catalog: first}, &memory{}
	server := httptest.NewServer(graphs)
	defer server.Close()

	s := source(t, server.URL, store, given)
	stop := run(t, s)
	// Releases mention channels that the initial catalogue does not have.
	await(t, s, "4.21.1")
	graphs.set(false, second)
	await(t, s, "4.22.0")
	graphs.set(true, nil)
	stop()
	if updates := s.Catalog().Updates(release.Version{Major: 4, Minor: 21, Patch: 1}, "stable-4.22"); len(updates) != 1 {
		t.Errorf("updates: %v", updates)
	}

	// A new process that cannot reach the service reads the stored graphs.
	other := source(t, server.URL, store, given)
	stop = run(t, other)
	await(t, other, "4.22.0")
	stop()
	// A process without stored graphs has the initial catalogue.
	empty := source(t, server.URL, &memory{}, given)
	stop = run(t, empty)
	await(t, empty, "4.20.1")
	stop()
}

// TestIncompleteResponseChangesNothing serves one valid and one invalid channel.
func TestIncompleteResponseChangesNothing(t *testing.T) {
	graphs := &service{catalog: parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("channel") == "stable-4.21" {
			_, _ = w.Write([]byte(`{"nodes": [{"version": "4.21.1", "payload": "r@sha256:x"}], "edges": [[0, 7]]}`))
			return
		}
		graphs.ServeHTTP(w, r)
	}))
	defer server.Close()
	s := source(t, server.URL, &memory{}, parse(t, "4.20.1 stable-4.20"))
	if err := s.refresh(t.Context()); err == nil {
		t.Fatal("an invalid graph was accepted")
	}
	if _, known := s.Catalog().Exact("4.21.1"); known {
		t.Error("an incomplete response was applied")
	}
}
