// Package fanout tells sources of their resources' new statuses. A hub holds the replica's subscribers; each has a queue
// of its own in which only the newest status of a resource waits, so a slow subscriber costs memory in proportion to its
// resources and delays nobody. One that falls too far behind is cut off: it subscribes again and resyncs. Statuses that
// other replicas took in arrive by their news, and whatever news was lost is found by following the database.
package fanout

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// ErrBehind ends a subscription whose subscriber does not keep up.
var ErrBehind = errors.New("the subscriber is too far behind; subscribe again and resync")

const (
	// queueLimit bounds the resources whose status waits for one subscriber.
	queueLimit = 20_000
	// resendRoom is up to how many wait while a resync adds more: the rest is room for what is new.
	resendRoom = queueLimit / 2
	// resendPatience is how long a resync waits for a subscriber that takes nothing.
	resendPatience = 2 * time.Second
	// sweepPage must be larger than a transaction of statuses.
	sweepPage = 2_000
)

// Hub is where statuses meet subscribers.
type Hub struct {
	store *store.Store
	self  string
	sweep time.Duration
	log   *slog.Logger

	mu          sync.RWMutex
	subscribers map[*Subscription]struct{}
	// told is the newest status revision that was announced, for each resource whose status the sweep has yet to pass.
	told map[string]int64

	news     chan store.News
	size     prometheus.Gauge
	overruns prometheus.Counter
}

// New makes a hub. self names this replica in its news.
func New(s *store.Store, self string, sweep time.Duration, registry prometheus.Registerer, log *slog.Logger) *Hub {
	if sweep <= 0 {
		sweep = 2 * time.Second
	}
	h := &Hub{
		store: s, self: self, sweep: sweep, log: log, subscribers: map[*Subscription]struct{}{}, told: map[string]int64{},
		news: make(chan store.News, 1024),
		size: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "maestro", Name: "subscribers", Help: "Status subscribers of this replica."}),
		overruns: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "maestro", Name: "subscribers_cut_off_total",
			Help: "Status subscribers that were cut off because they did not keep up."}),
	}
	registry.MustRegister(h.size, h.overruns)
	return h
}

// Subscription is one subscriber's queue.
type Subscription struct {
	hub              *Hub
	source, consumer string

	mu     sync.Mutex
	newest map[string]*resource.Resource
	order  []string
	behind bool
	ready  chan struct{}
	// taken is closed, and another one made, when something was taken; stuck says that a resync waited for that in vain.
	taken chan struct{}
	stuck bool
}

// Subscribe opens a queue for the statuses of a source's resources, on one consumer or, with an empty name, on all.
func (h *Hub) Subscribe(source, consumer string) *Subscription {
	s := &Subscription{hub: h, source: source, consumer: consumer, newest: map[string]*resource.Resource{}, ready: make(chan struct{}, 1), taken: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[s] = struct{}{}
	h.size.Inc()
	return s
}

// Close ends a subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if _, ok := s.hub.subscribers[s]; ok {
		delete(s.hub.subscribers, s)
		s.hub.size.Dec()
	}
}

// Ready is signalled when something waits.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take removes what waits, oldest first, at most so many.
func (s *Subscription) Take(limit int) ([]*resource.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind {
		return nil, ErrBehind
	}
	n := min(limit, len(s.order))
	taken := make([]*resource.Resource, 0, n)
	for _, id := range s.order[:n] {
		taken = append(taken, s.newest[id])
		delete(s.newest, id)
	}
	s.order = append(s.order[:0:0], s.order[n:]...)
	if len(s.order) > 0 {
		s.signal()
	}
	close(s.taken)
	s.taken, s.stuck = make(chan struct{}), false
	return taken, nil
}

// awaitRoom waits until a subscriber that goes on taking has room for what a resync adds.
func (s *Subscription) awaitRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		full, taken := !s.behind && !s.stuck && len(s.order) >= resendRoom, s.taken
		s.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resendPatience):
			s.mu.Lock()
			s.stuck = true
			s.mu.Unlock()
			return
		case <-taken:
		}
	}
}

func (s *Subscription) put(r *resource.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind {
		return
	}
	if _, waiting := s.newest[r.ID]; !waiting {
		if len(s.order) >= queueLimit {
			s.behind, s.newest, s.order = true, nil, nil
			s.hub.overruns.Inc()
			s.signal()
			return
		}
		s.order = append(s.order, r.ID)
	}
	s.newest[r.ID] = r
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Announce tells this replica's subscribers, and the other replicas, of reports that were just committed.
func (h *Hub) Announce(reports []*store.Report) {
	news := store.News{From: h.self}
	h.mu.Lock()
	for _, report := range reports {
		if report.Revision > h.told[report.Resource.ID] {
			h.told[report.Resource.ID] = report.Revision
		}
		news.Resources = append(news.Resources, report.Resource.ID)
	}
	h.mu.Unlock()
	for _, report := range reports {
		h.deliver(report.Resource)
	}
	h.Tell(news)
}

// Resend puts a source's statuses in line once more, here and at the other replicas, as a resync asks for. It goes at the pace of
// the subscribers, which would otherwise be cut off by what they have asked for.
func (h *Hub) Resend(ctx context.Context, resources []*resource.Resource) {
	for _, s := range h.subscribersOf(resources) {
		s.awaitRoom(ctx)
	}
	news := store.News{From: h.self}
	for _, r := range resources {
		if r.Status == nil {
			continue
		}
		h.deliver(r)
		news.Resources = append(news.Resources, r.ID)
	}
	h.Tell(news)
}

// subscribersOf are those whom the statuses of a source's resources concern.
func (h *Hub) subscribersOf(resources []*resource.Resource) []*Subscription {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var concerned []*Subscription
	for s := range h.subscribers {
		if len(resources) > 0 && s.source == resources[0].Source {
			concerned = append(concerned, s)
		}
	}
	return concerned
}

// Tell passes news to the other replicas, soon and without waiting for it. What does not fit in the queue is dropped:
// the other replicas find it by themselves, a little later.
func (h *Hub) Tell(news store.News) {
	news.From = h.self
	select {
	case h.news <- news:
	default:
	}
}

func (h *Hub) deliver(r *resource.Resource) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.subscribers {
		if s.source == r.Source && (s.consumer == "" || s.consumer == r.Consumer) {
			s.put(r)
		}
	}
}

// Hear takes another replica's news in.
func (h *Hub) Hear(ctx context.Context, news store.News) {
	if len(news.Resources) == 0 {
		return
	}
	h.mu.RLock()
	idle := len(h.subscribers) == 0
	h.mu.RUnlock()
	if idle {
		return
	}
	changed, err := h.store.Load(ctx, news.Resources)
	if err != nil {
		h.log.Warn("another replica's news could not be read; the next sweep will find it", "error", err)
		return
	}
	for _, r := range changed {
		if r.Status != nil {
			h.deliver(r)
		}
	}
}

// Run sends this replica's news and sweeps the database for statuses nobody told of, until the context ends.
func (h *Hub) Run(ctx context.Context) error {
	var tellers sync.WaitGroup
	tellers.Add(1)
	go func() { defer tellers.Done(); h.tell(ctx) }()
	defer tellers.Wait()

	ticker := time.NewTicker(h.sweep)
	defer ticker.Stop()
	var from store.Position
	for {
		next, err := h.follow(ctx, from)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			h.log.Warn("sweep for statuses failed", "error", err)
		}
		from = next
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *Hub) follow(ctx context.Context, from store.Position) (store.Position, error) {
	for {
		changed, next, err := h.store.Since(ctx, from, sweepPage)
		if err != nil {
			return from, err
		}
		for _, report := range changed {
			id := report.Resource.ID
			h.mu.Lock()
			told, known := h.told[id]
			if known && told <= report.Revision || report.Outcome == store.Removed {
				delete(h.told, id)
			}
			h.mu.Unlock()
			// A removal carries no revision; hearing of it twice is harmless, and it is not repeated by the next sweep.
			if !known || told < report.Revision {
				h.deliver(report.Resource)
			}
		}
		if len(changed) < sweepPage || next == from {
			return next, nil
		}
		from = next
	}
}

// tell sends queued news, as much of it at once as there is.
func (h *Hub) tell(ctx context.Context) {
	for {
		var news store.News
		select {
		case <-ctx.Done():
			return
		case news = <-h.news:
		}
		for more := true; more && len(news.Resources) < 1000; {
			select {
			case next := <-h.news:
				news.Consumers = append(news.Consumers, next.Consumers...)
				news.Resources = append(news.Resources, next.Resources...)
			default:
				more = false
			}
		}
		news.Consumers = unique(news.Consumers)
		if err := h.store.Tell(ctx, news); err != nil && ctx.Err() == nil {
			h.log.Warn("news not sent; the other replicas will find it later", "error", err)
		}
	}
}

func unique(names []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
