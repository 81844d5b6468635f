// Package updategraph provides the release catalogue of Cluster Service. It builds the catalogue from the update graphs of all
// channels, which a service of the Cincinnati protocol serves. A Source polls the graphs and stores them. While the service is
// unavailable, also after a restart, the last stored graphs apply; before the first response, the initial catalogue does. A
// catalogue is replaced as a whole, so that no decision is based on an incomplete response. Malformed releases, edges and channels are logged and
// counted, and hide no others. Releases without a valid signature are
// refusals of the catalogue: nobody can choose them.
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
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

const (
	// maxChannels is the maximum number of channels: enough for three groups of two dozen minor versions.
	maxChannels = 100
	// maxGraph is the maximum size of a response. The largest graphs of OpenShift are below 2 MiB.
	maxGraph = 16 << 20
	// maxLogged is the number of malformed elements that a log record names.
	maxLogged = 10
	// requestTimeout applies to the request for one channel.
	requestTimeout = 15 * time.Second
	// defaultRefresh is the default interval between polls. After a failure, pauses grow from firstRetry to lastRetry.
	defaultRefresh = time.Minute
	firstRetry     = time.Second
	lastRetry      = time.Minute
	// architecture is that of the payloads. Control planes and node pools may have different ones, so it is multi.
	architecture = "multi"
)

// Store stores the last known graphs as they were served, by channel.
type Store interface {
	UpdateGraphs(ctx context.Context) (map[string][]byte, error)
	SaveUpdateGraphs(ctx context.Context, graphs map[string][]byte) error
	// ReleaseSignatures returns the stored signatures by digest. They are verified again.
	ReleaseSignatures(ctx context.Context) (map[string][]byte, error)
	SaveReleaseSignatures(ctx context.Context, signatures map[string][]byte) error
}

// Options configure a Source.
type Options struct {
	// URL is the base URL of the service, without /v1/graph. Without a URL the catalogue never changes.
	URL string
	// Client sends the requests.
	Client *http.Client
	Store  Store
	// Catalog is the initial catalogue.
	Catalog *release.Catalog
	// Signatures verifies releases before they enter the catalogue.
	Signatures Signatures
	// Refresh is the interval between polls; 0 means one minute.
	Refresh time.Duration
	Metrics prometheus.Registerer
	// Changed is called after the catalogue was replaced. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Source provides the newest catalogue. Catalog is safe for concurrent use.
type Source struct {
	o       Options
	current atomic.Pointer[release.Catalog]
	// refreshed is the time of the last complete poll, in nanoseconds; 0 for never.
	refreshed atomic.Int64
	channels  atomic.Int64
	responses map[string]response
	// candidate is the newest catalogue, with refused releases.
	candidate *release.Catalog
	// changed reports that the candidate is not verified.
	changed bool
	// invalid and undecided count the refused releases.
	invalid, undecided atomic.Int64
	// ignored are the malformed elements of the graphs, sorted, and ignoredCount is their number.
	ignored      []string
	ignoredCount atomic.Int64
	// saved are the stored signatures, and logged the logged reasons of refusals, by digest.
	saved  map[string][]byte
	logged map[string]string
}

// response is the last response for a channel.
type response struct {
	body []byte
	tag  string
}

// Fixed returns a source with a catalogue that never changes.
func Fixed(catalog *release.Catalog) *Source {
	s := &Source{}
	s.current.Store(catalog)
	return s
}

// New returns a source. Run makes it poll the graphs.
func New(o Options) *Source {
	if o.Refresh == 0 {
		o.Refresh = defaultRefresh
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	s := &Source{o: o, responses: map[string]response{}, candidate: o.Catalog}
	s.current.Store(unverified(o.Catalog))
	o.Metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "update_graph_age_seconds",
			Help: "Seconds since the update graph was last read; -1 before the first time."}, func() float64 {
			if refreshed := s.refreshed.Load(); refreshed != 0 {
				return time.Since(time.Unix(0, refreshed)).Seconds()
			}
			return -1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "update_graph_channels",
			Help: "Number of channels with a known update graph."}, func() float64 { return float64(s.channels.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "update_graph_ignored",
			Help: "Number of elements of the update graph that cannot be used, because they are malformed: releases, edges, or the graphs of whole channels."}, func() float64 { return float64(s.ignoredCount.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "releases_refused",
			Help: "Number of releases that are refused because they have no valid signature."}, func() float64 { return float64(s.invalid.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "releases_unverified",
			Help: "Number of releases that are refused because the store of signatures did not respond."}, func() float64 { return float64(s.undecided.Load()) }))
	return s
}

// Catalog returns the newest catalogue.
func (s *Source) Catalog() *release.Catalog { return s.current.Load() }

// Run polls the graphs and verifies releases until ctx ends.
func (s *Source) Run(ctx context.Context) {
	if s.candidate == nil {
		<-ctx.Done() // the catalogue is fixed
		return
	}
	s.loadSignatures(ctx)
	if s.o.URL != "" {
		s.loadStored(ctx)
	}
	retries, verifications := backoff.New(firstRetry, lastRetry), backoff.New(firstRetry, lastRetry)
	var verifyAt time.Time
	for {
		if now := time.Now(); !now.Before(verifyAt) || s.changed {
			s.changed = false
			next, unavailable := s.admit(ctx)
			if unavailable {
				next = verifications.Next()
			} else {
				verifications.Reset()
			}
			verifyAt = now.Add(next)
		}
		pause := s.o.Refresh
		if s.o.URL == "" {
			pause = time.Until(verifyAt)
		} else if err := s.refresh(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			pause = retries.Next()
			s.o.Log.Warn("reading the update graph failed; the last known graph applies", logkey.Error, err, logkey.RetryIn, pause.String())
		} else {
			retries.Reset()
		}
		if s.changed {
			continue
		}
		if backoff.Sleep(ctx, min(pause, max(time.Until(verifyAt), 0))) != nil {
			return
		}
	}
}

// loadStored replaces the catalogue with the one of the stored graphs, if there are any.
func (s *Source) loadStored(ctx context.Context) {
	stored, err := s.o.Store.UpdateGraphs(ctx)
	if err != nil || len(stored) == 0 {
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("reading the stored update graphs failed", logkey.Error, err)
		}
		return
	}
	graphs := map[string]*release.Graph{}
	var ignored []string
	for channel, body := range stored {
		g, malformed, err := release.ParseGraph(body)
		ignored = append(ignored, inChannel(channel, malformed, err)...)
		if err == nil {
			graphs[channel] = g
		}
	}
	catalog, more, err := release.FromGraphs(graphs)
	if err != nil {
		s.o.Log.Warn("stored update graphs give no catalogue", logkey.Error, err)
		return
	}
	s.ignore(append(ignored, more...))
	for channel := range graphs {
		s.responses[channel] = response{body: stored[channel]}
	}
	s.replace(catalog, len(graphs))
}

// replace makes a catalogue the candidate. Run verifies it.
func (s *Source) replace(catalog *release.Catalog, channels int) {
	s.candidate, s.changed = catalog, true
	s.channels.Store(int64(channels))
}

// inChannel returns the malformed elements of the graph of a channel, or why the whole response is malformed.
func inChannel(channel string, malformed []string, err error) []string {
	if err != nil {
		malformed = []string{err.Error()}
	}
	named := make([]string, len(malformed))
	for i, reason := range malformed {
		named[i] = "channel " + channel + ": " + reason
	}
	return named
}

// ignore counts the elements of the update graph that cannot be used, and logs them when they change.
func (s *Source) ignore(elements []string) {
	slices.Sort(elements)
	if slices.Equal(elements, s.ignored) {
		return
	}
	s.ignored = elements
	s.ignoredCount.Store(int64(len(elements)))
	if len(elements) > 0 {
		s.o.Log.Error("elements of the update graph are malformed; the others apply", logkey.Count, len(elements), logkey.Error, errors.New(strings.Join(elements[:min(len(elements), maxLogged)], "; ")))
	}
}

// refresh requests the graphs of all known channels and of those that the responses mention. Unless all requests succeed,
// nothing changes: a later attempt may get what is missing. A malformed response is different, because no attempt changes it: the last response
// for its channel applies, and those for other channels do.
func (s *Source) refresh(ctx context.Context) error {
	var ignored []string
	pending := s.candidate.Channels()
	next := map[string]response{}
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
		received, err := s.request(ctx, channel)
		if err != nil {
			return fmt.Errorf("request channel %s: %w", channel, err)
		}
		g, malformed, err := release.ParseGraph(received.body)
		ignored = append(ignored, inChannel(channel, malformed, err)...)
		if err != nil {
			last, known := s.responses[channel]
			received = response{body: last.body} // without its tag, so that the service sends the graph again
			if g, _, err = release.ParseGraph(last.body); !known || err != nil {
				g = &release.Graph{}
			}
		}
		next[channel] = received
		if len(g.Nodes) > 0 {
			graphs[channel] = g
		}
		pending = append(pending, g.Mentioned()...)
	}
	catalog, more, err := release.FromGraphs(graphs)
	s.ignore(append(ignored, more...))
	if err != nil {
		return err
	}
	s.refreshed.Store(time.Now().UnixNano())
	same := maps.EqualFunc(s.responses, next, func(a, b response) bool { return bytes.Equal(a.body, b.body) })
	if same {
		s.responses = next // their ETags may be new
		return nil
	}
	bodies := map[string][]byte{}
	for channel := range graphs {
		bodies[channel] = next[channel].body
	}
	if err := s.o.Store.SaveUpdateGraphs(ctx, bodies); err != nil {
		return fmt.Errorf("store the update graphs: %w", err)
	}
	s.responses = next
	s.replace(catalog, len(graphs))
	s.o.Log.Info("update graph changed", logkey.Count, len(catalog.Releases()))
	return nil
}

// request returns the graph of a channel. If the graph has not changed, it returns the last response.
func (s *Source) request(ctx context.Context, channel string) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{"channel": {channel}, "arch": {architecture}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.o.URL+"/v1/graph?"+query.Encode(), nil)
	if err != nil {
		return response{}, err
	}
	r.Header.Set("Accept", "application/json")
	before, known := s.responses[channel]
	if known && before.tag != "" {
		r.Header.Set("If-None-Match", before.tag)
	}
	received, err := s.o.Client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer received.Body.Close()
	switch {
	case received.StatusCode == http.StatusNotModified && known:
		return before, nil
	case received.StatusCode != http.StatusOK:
		return response{}, fmt.Errorf("the service returned %s", received.Status)
	}
	body, err := io.ReadAll(io.LimitReader(received.Body, maxGraph+1))
	switch {
	case err != nil:
		return response{}, err
	case len(body) > maxGraph:
		return response{}, errors.New("the graph is too large")
	}
	return response{body: slices.Clip(body), tag: received.Header.Get("ETag")}, nil
}
