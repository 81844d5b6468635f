package sourceapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// ErrBehind ends the subscription of a subscriber that does not keep up.
var ErrBehind = errors.New("the subscriber is too far behind; subscribe again and resync")

const (
	// queueLimit bounds the statuses that wait for one subscriber.
	queueLimit = 20_000
	// resendLimit bounds the waiting statuses while a resync adds more; the rest of the queue is for new statuses.
	resendLimit = queueLimit / 2
	// resendTimeout bounds the wait of a resync for a subscriber that takes nothing.
	resendTimeout = 2 * time.Second
	// sweepPage must be larger than the number of statuses in one transaction.
	sweepPage = 2_000
)

// Hub passes statuses to the subscribers of one replica. It is safe for concurrent use.
type Hub struct {
	store *store.Store
	self  string
	sweep time.Duration
	log   *slog.Logger

	mu          sync.RWMutex
	subscribers map[*Subscription]struct{}
	// announced holds the newest announced status revision of each resource that the sweep has not passed yet.
	announced map[string]int64

	notifications chan store.Notification
	size          prometheus.Gauge
	overruns      prometheus.Counter
}

// NewHub returns a Hub. self identifies this replica in its notifications.
func NewHub(s *store.Store, self string, sweep time.Duration, registry prometheus.Registerer, log *slog.Logger) *Hub {
	if sweep <= 0 {
		sweep = 2 * time.Second
	}
	h := &Hub{
		store: s, self: self, sweep: sweep, log: log, subscribers: map[*Subscription]struct{}{}, announced: map[string]int64{},
		notifications: make(chan store.Notification, 1024),
		size:          prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "maestro", Name: "subscribers", Help: "Status subscribers of this replica."}),
		overruns: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "maestro", Name: "subscribers_cut_off_total",
			Help: "Status subscribers disconnected because they did not keep up."}),
	}
	registry.MustRegister(h.size, h.overruns)
	return h
}

// Subscription is the queue of one subscriber.
type Subscription struct {
	hub              *Hub
	source, consumer string

	mu     sync.Mutex
	newest map[string]*resource.Resource
	order  []string
	behind bool
	ready  chan struct{}
	// taken is closed and replaced by each Take. stuck is set when a resync has waited for that without success.
	taken chan struct{}
	stuck bool
}

// Subscribe creates a queue for the statuses of a source's resources on one consumer, or on all if the name is empty.
func (h *Hub) Subscribe(source, consumer string) *Subscription {
	s := &Subscription{hub: h, source: source, consumer: consumer, newest: map[string]*resource.Resource{}, ready: make(chan struct{}, 1), taken: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[s] = struct{}{}
	h.size.Inc()
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if _, ok := s.hub.subscribers[s]; ok {
		delete(s.hub.subscribers, s)
		s.hub.size.Dec()
	}
}

// Ready returns a channel that receives a value when statuses wait.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take removes and returns up to limit waiting statuses, oldest first.
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

// waitForSpace waits until the subscriber has space for the statuses of a resync, ctx ends, or the subscriber is stuck.
func (s *Subscription) waitForSpace(ctx context.Context) {
	timer := time.NewTimer(resendTimeout)
	defer timer.Stop()
	for {
		s.mu.Lock()
		full, taken := !s.behind && !s.stuck && len(s.order) >= resendLimit, s.taken
		s.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			s.mu.Lock()
			s.stuck = true
			s.mu.Unlock()
			return
		case <-taken:
			timer.Reset(resendTimeout)
		}
	}
}

func (s *Subscription) enqueue(r *resource.Resource) {
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

// Announce sends reports that were just committed to the subscribers of this replica and notifies the other replicas.
func (h *Hub) Announce(reports []*store.Report) {
	notification := store.Notification{From: h.self}
	h.mu.Lock()
	for _, report := range reports {
		if report.Revision > h.announced[report.Resource.ID] {
			h.announced[report.Resource.ID] = report.Revision
		}
		notification.Resources = append(notification.Resources, report.Resource.ID)
	}
	h.mu.Unlock()
	for _, report := range reports {
		h.deliver(report.Resource)
	}
	h.Notify(notification)
}

// Resend sends statuses of a source again, to the subscribers of all replicas, in response to a resync. It waits for slow
// subscribers, because the response to their own request would otherwise disconnect them.
func (h *Hub) Resend(ctx context.Context, resources []*resource.Resource) {
	for _, s := range h.subscribersOf(resources) {
		s.waitForSpace(ctx)
	}
	notification := store.Notification{From: h.self}
	for _, r := range resources {
		if r.Status == nil {
			continue
		}
		h.deliver(r)
		notification.Resources = append(notification.Resources, r.ID)
	}
	h.Notify(notification)
}

// subscribersOf returns the subscribers to the source of the resources.
func (h *Hub) subscribersOf(resources []*resource.Resource) []*Subscription {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var subscribers []*Subscription
	for s := range h.subscribers {
		if len(resources) > 0 && s.source == resources[0].Source {
			subscribers = append(subscribers, s)
		}
	}
	return subscribers
}

// Notify queues a notification of the other replicas and does not wait for it. If the queue is full it drops the notification:
// the other replicas find the change a little later.
func (h *Hub) Notify(notification store.Notification) {
	notification.From = h.self
	select {
	case h.notifications <- notification:
	default:
	}
}

func (h *Hub) deliver(r *resource.Resource) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.subscribers {
		if s.source == r.Source && (s.consumer == "" || s.consumer == r.Consumer) {
			s.enqueue(r)
		}
	}
}

// HandleNotification sends the statuses that another replica has stored to the subscribers of this one.
func (h *Hub) HandleNotification(ctx context.Context, notification store.Notification) {
	if len(notification.Resources) == 0 {
		return
	}
	h.mu.RLock()
	idle := len(h.subscribers) == 0
	h.mu.RUnlock()
	if idle {
		return
	}
	changed, err := h.store.Load(ctx, notification.Resources)
	if err != nil {
		h.log.WarnContext(ctx, "reading the statuses of a notification failed; the next sweep repeats it", logkey.Error, err)
		return
	}
	for _, r := range changed {
		if r.Status != nil {
			h.deliver(r)
		}
	}
}

// Run sends the notifications of this replica, and reads the database for statuses without a notification, until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { h.sendNotifications(ctx) })
	defer group.Wait()

	ticker := time.NewTicker(h.sweep)
	defer ticker.Stop()
	var from store.Position
	for {
		next, err := h.deliverSince(ctx, from)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			h.log.WarnContext(ctx, "reading new statuses failed", logkey.Error, err)
		}
		from = next
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (h *Hub) deliverSince(ctx context.Context, from store.Position) (store.Position, error) {
	for {
		changed, next, err := h.store.Since(ctx, from, sweepPage)
		if err != nil {
			return from, err
		}
		for _, report := range changed {
			id := report.Resource.ID
			h.mu.Lock()
			announced, known := h.announced[id]
			if known && announced <= report.Revision || report.Outcome == store.Removed {
				delete(h.announced, id)
			}
			h.mu.Unlock()
			// A removal has no revision. Sending it twice is harmless, and the next sweep does not repeat it.
			if !known || announced < report.Revision {
				h.deliver(report.Resource)
			}
		}
		if len(changed) < sweepPage || next == from {
			return next, nil
		}
		from = next
	}
}

// sendNotifications sends the queued notifications, several in one message if possible.
func (h *Hub) sendNotifications(ctx context.Context) {
	for {
		var notification store.Notification
		select {
		case <-ctx.Done():
			return
		case notification = <-h.notifications:
		}
		for more := true; more && len(notification.Resources) < 1000; {
			select {
			case next := <-h.notifications:
				notification.Consumers = append(notification.Consumers, next.Consumers...)
				notification.Resources = append(notification.Resources, next.Resources...)
			default:
				more = false
			}
		}
		slices.Sort(notification.Consumers)
		notification.Consumers = slices.Compact(notification.Consumers)
		if err := h.store.Notify(ctx, notification); err != nil && ctx.Err() == nil {
			h.log.WarnContext(ctx, "notifying the other replicas failed", logkey.Error, err)
		}
	}
}
