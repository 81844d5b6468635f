package updategraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	mu sync.Mutex
	// malformed has other responses, by channel.
	malformed   map[string]string
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
	if text, ok := s.malformed[channel]; ok {
		_, _ = w.Write([]byte(text))
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

// TestMalformedChannelHidesNoOther: the last response for a channel applies while its response is malformed, and other channels change. The channel
// is counted, and read again.
func TestMalformedChannelHidesNoOther(t *testing.T) {
	first := parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21, stable-4.22")
	second := parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21, stable-4.22", "4.22.0 stable-4.22")
	graphs, store := &service{catalog: first}, &memory{}
	server := httptest.NewServer(graphs)
	defer server.Close()
	s := source(t, server.URL, store, parse(t, "4.20.1 stable-4.20"))
	defer run(t, s)()
	await(t, s, "4.21.1")

	graphs.mu.Lock()
	graphs.catalog, graphs.malformed = second, map[string]string{"stable-4.20": `{"nodes":7}`, "stable-4.21": "<html>"}
	graphs.mu.Unlock()
	await(t, s, "4.22.0")
	awaitIgnored(t, s, 2)
	if _, known := s.Catalog().Exact("4.20.1"); !known {
		t.Error("the last response of the malformed channel does not apply")
	}
	if updates := s.Catalog().Updates(release.Version{Major: 4, Minor: 20, Patch: 1}, "stable-4.21"); len(updates) != 1 {
		t.Errorf("updates: %v", updates)
	}
	graphs.mu.Lock()
	graphs.malformed = nil
	graphs.mu.Unlock()
	awaitIgnored(t, s, 0)
}

func awaitIgnored(t *testing.T, s *Source, want int64) {
	t.Helper()
	eventually.Soon(t, fmt.Sprintf("%d elements are ignored", want), func() error {
		if ignored := s.ignoredCount.Load(); ignored != want {
			return fmt.Errorf("%d elements are", ignored)
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

// TestIncompleteResponseChangesNothing serves one valid channel and one that fails.
func TestIncompleteResponseChangesNothing(t *testing.T) {
	graphs := &service{catalog: parse(t, "4.20.1 stable-4.20, stable-4.21", "4.21.1 stable-4.21")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("channel") == "stable-4.21" {
			http.Error(w, "unavailable", http.StatusBadGateway)
			return
		}
		graphs.ServeHTTP(w, r)
	}))
	defer server.Close()
	s := source(t, server.URL, &memory{}, parse(t, "4.20.1 stable-4.20"))
	if err := s.refresh(t.Context()); err == nil {
		t.Fatal("an incomplete response was accepted")
	}
	if _, known := s.Catalog().Exact("4.21.1"); known {
		t.Error("an incomplete response was applied")
	}
}
