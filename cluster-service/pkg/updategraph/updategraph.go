// Package updategraph keeps Cluster Service's knowledge of which releases there are and which ways lead from one to
// another: a catalogue that is made of the update graphs of all channels, which a service of the Cincinnati protocol
// serves. The graphs are asked for again and again and stored; when the service is away, and after a restart meanwhile, the
// last known ones go on, and before any was heard of, the catalogue that the process was given. A catalogue is replaced as
// a whole, so that no decision is made of half an answer.
package updategraph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

const (
	// maxChannels bounds how many channels are asked for: three groups of two dozen minor versions.
	maxChannels = 100
	// maxGraph bounds an answer: OpenShift's largest are below 2 MiB.
	maxGraph = 16 << 20
	// requestTimeout is for one channel.
	requestTimeout = 15 * time.Second
	// defaultRefresh is how often the graphs are asked for, and firstRetry to maxRetry how soon after a failure.
	defaultRefresh = time.Minute
	firstRetry     = time.Second
	maxRetry       = time.Minute
	// architecture of the payloads: control planes and node pools may differ in theirs.
	architecture = "multi"
)

// Store keeps the last known graphs, as they were served, by channel.
type Store interface {
	UpdateGraphs(ctx context.Context) (map[string][]byte, error)
	SaveUpdateGraphs(ctx context.Context, graphs map[string][]byte) error
}

// Options of a source.
type Options struct {
	// URL is the service's, up to and without /v1/graph.
	URL string
	// Client speaks to it.
	Client *http.Client
	Store  Store
	// Catalog is what is known before any graph is.
	Catalog *release.Catalog
	// Refresh is how often to ask; 0 means every minute.
	Refresh time.Duration
	Metrics prometheus.Registerer
	// Changed is called after the catalogue was replaced; it must not block.
	Changed func()
}

// Source is the newest catalogue.
type Source struct {
	o       Options
	current atomic.Pointer[release.Catalog]
	// heard is when the service last answered, in nanoseconds; 0 for never.
	heard    atomic.Int64
	channels atomic.Int64
	answers  map[string]answer
}

// answer is what a channel was last answered with.
type answer struct {
	body []byte
	tag  string
}

// Fixed is a source that always has one catalogue.
func Fixed(catalog *release.Catalog) *Source {
	s := &Source{}
	s.current.Store(catalog)
	return s
}

// New makes a source; Run has it follow the graphs.
func New(o Options) *Source {
	if o.Refresh == 0 {
		o.Refresh = defaultRefresh
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	s := &Source{o: o, answers: map[string]answer{}}
	s.current.Store(o.Catalog)
	o.Metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "update_graph_age_seconds",
			Help: "Seconds since the update graph was last read; -1 before the first time."}, func() float64 {
			if heard := s.heard.Load(); heard != 0 {
				return time.Since(time.Unix(0, heard)).Seconds()
			}
			return -1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "update_graph_channels",
			Help: "Channels of which the update graph is known."}, func() float64 { return float64(s.channels.Load()) }))
	return s
}

// Catalog is the newest catalogue.
func (s *Source) Catalog() *release.Catalog { return s.current.Load() }

// Run follows the graphs until ctx is over.
func (s *Source) Run(ctx context.Context) {
	if s.o.URL == "" {
		<-ctx.Done()
		return
	}
	s.recall(ctx)
	retry := firstRetry
	for {
		wait := s.o.Refresh
		if err := s.refresh(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			slog.Warn("the update graph cannot be read; what is known of it goes on", "error", err)
			wait, retry = retry, min(2*retry, maxRetry)
		} else {
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// recall takes up the graphs that were stored.
func (s *Source) recall(ctx context.Context) {
	stored, err := s.o.Store.UpdateGraphs(ctx)
	if err != nil || len(stored) == 0 {
		if err != nil && ctx.Err() == nil {
			slog.Warn("reading the stored update graphs failed", "error", err)
		}
		return
	}
	graphs := map[string]*release.Graph{}
	for channel, body := range stored {
		if graphs[channel], err = release.ParseGraph(body); err != nil {
			slog.Warn("a stored update graph cannot be read", "channel", channel, "error", err)
			return
		}
	}
	catalog, err := release.FromGraphs(graphs)
	if err != nil {
		slog.Warn("the stored update graphs make no catalogue", "error", err)
		return
	}
	for channel, body := range stored {
		s.answers[channel] = answer{body: body}
	}
	s.replace(catalog, len(graphs))
}

func (s *Source) replace(catalog *release.Catalog, channels int) {
	s.current.Store(catalog)
	s.channels.Store(int64(channels))
	s.o.Changed()
}

// refresh asks for all channels: those that are known and those that the answers mention. All are answered, or nothing changes.
func (s *Source) refresh(ctx context.Context) error {
	pending := s.Catalog().Channels()
	next := map[string]answer{}
	graphs := map[string]*release.Graph{}
	for len(pending) > 0 {
		channel := pending[0]
		pending = pending[1:]
		if _, done := next[channel]; done {
			continue
		}
		if len(next) == maxChannels {
			return fmt.Errorf("the update graph has more than %d channels", maxChannels)
		}
		a, err := s.ask(ctx, channel)
		if err != nil {
			return fmt.Errorf("asking for channel %s: %w", channel, err)
		}
		g, err := release.ParseGraph(a.body)
		if err != nil {
			return fmt.Errorf("channel %s: %w", channel, err)
		}
		next[channel] = a
		if len(g.Nodes) > 0 {
			graphs[channel] = g
		}
		pending = append(pending, g.Mentioned()...)
	}
	s.heard.Store(time.Now().UnixNano())
	same := maps.EqualFunc(s.answers, next, func(a, b answer) bool { return bytes.Equal(a.body, b.body) })
	if same {
		s.answers = next // their tags may be new
		return nil
	}
	catalog, err := release.FromGraphs(graphs)
	if err != nil {
		return err
	}
	bodies := map[string][]byte{}
	for channel := range graphs {
		bodies[channel] = next[channel].body
	}
	if err := s.o.Store.SaveUpdateGraphs(ctx, bodies); err != nil {
		return fmt.Errorf("storing the update graphs: %w", err)
	}
	s.answers = next
	s.replace(catalog, len(graphs))
	slog.Info("read the update graph", "channels", len(graphs), "releases", len(catalog.Releases()))
	return nil
}

// ask gets a channel's graph, or finds that it has not changed.
func (s *Source) ask(ctx context.Context, channel string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{"channel": {channel}, "arch": {architecture}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.o.URL+"/v1/graph?"+query.Encode(), nil)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	before, known := s.answers[channel]
	if known && before.tag != "" {
		request.Header.Set("If-None-Match", before.tag)
	}
	response, err := s.o.Client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && known:
		return before, nil
	case response.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("it answered %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxGraph+1))
	switch {
	case err != nil:
		return answer{}, err
	case len(body) > maxGraph:
		return answer{}, errors.New("the graph is too large")
	}
	return answer{body: slices.Clip(body), tag: response.Header.Get("ETag")}, nil
}
