package elevation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// maxSubscriptions limits the number of requests that wait for a change.
	maxSubscriptions = 500
	// feedOverlap is how long before the first list the watcher reads changes from. The change feed has a resolution of a second.
	feedOverlap = 5 * time.Second
	// listRetry is the pause after the first list failed.
	listRetry = 5 * time.Second

	reasonUnverified, reasonSetBack = "unverified", "set-back"
)

// Watcher follows the changes of all elevations. It notifies subscribers, counts the emergencies that wait for a review, holds which
// elevations are active, and counts the changes that admin did not make.
type Watcher struct {
	db         *database.DB
	seals      *Sealer
	feed       database.FeedOptions
	log        *slog.Logger
	unreviewed prometheus.Gauge
	// refused counts changes that admin did not make, by reason.
	refused *prometheus.CounterVec
	// observe receives all changes of the container; may be nil.
	observe database.Handler

	release  sync.Once
	released chan struct{}

	mu sync.Mutex
	// subscribers are by the ID of the elevation. Each channel has room for one notification.
	subscribers   map[string]map[chan struct{}]bool
	subscriptions int
	// emergencies are the IDs of the emergency elevations without a review.
	emergencies map[string]bool
	// active are the elevations whose stored state is Active, by ID. Those that have expired are removed when Active is called.
	active map[string]ActiveElevation
}

// ActiveElevation is what a Watcher holds of an active elevation.
type ActiveElevation struct {
	ID, Ticket string
	Class      adminv1.AccessClass
	// Checked is when the ticket was last validated; without a validation, when the elevation began.
	Checked, Expiration time.Time
}

// NewWatcher returns a Watcher. It registers its metrics. Run must be running.
func NewWatcher(db *database.DB, seals *Sealer, feed database.FeedOptions, log *slog.Logger, metrics prometheus.Registerer) *Watcher {
	w := &Watcher{db: db, seals: seals, feed: feed, log: log, subscribers: map[string]map[chan struct{}]bool{}, emergencies: map[string]bool{}, active: map[string]ActiveElevation{}, released: make(chan struct{}),
		unreviewed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "admin_emergency_elevations_unreviewed", Help: "Emergency elevations that no second person has reviewed.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "admin_elevations_refused_total", Help: "Changes of elevations that admin did not make, by reason: unverified, or set-back to an earlier state.",
		}, []string{"reason"})}
	for _, reason := range []string{reasonUnverified, reasonSetBack} {
		w.refused.WithLabelValues(reason)
	}
	w.feed.Log = log
	metrics.MustRegister(w.unreviewed, w.refused)
	return w
}

// Observe sets a handler for all changes of the container, so that a process reads its change feed once. Call it before Run.
func (w *Watcher) Observe(handle database.Handler) { w.observe = handle }

// Release ends the waits of all subscribers, because the process stops.
func (w *Watcher) Release() { w.release.Do(func() { close(w.released) }) }

// Released returns a channel that Release closes.
func (w *Watcher) Released() <-chan struct{} { return w.released }

// Run follows the changes until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for {
		since := time.Now().Add(-feedOverlap)
		if err := w.list(ctx); err == nil {
			_ = w.db.TailAdmin(ctx, since, w.feed, w.take) // returns when ctx ends
			return
		} else if ctx.Err() == nil {
			w.log.WarnContext(ctx, "listing emergency elevations failed; retrying", logkey.Error, err)
		}
		if backoff.Sleep(ctx, listRetry) != nil {
			return
		}
	}
}

// list reads the emergencies without a review and all elevations that are or were open lately: those that have ended must not be set back.
func (w *Watcher) list(ctx context.Context) error {
	kinds := []database.Kind{database.ElevationKind}
	for _, filter := range []database.AdminFilter{{Kinds: kinds, UnreviewedOnly: true}, {Kinds: kinds, Since: OldestOpen(time.Now())}} {
		for token := ""; ; {
			records, next, err := w.db.AdminRecords(ctx, filter, token, 100)
			if err != nil {
				return err
			}
			for _, r := range records {
				e := &r.Elevation.Value
				if err := w.seals.Verify(e); err != nil {
					w.log.WarnContext(ctx, "admin did not write the stored elevation", logkey.OperationID, e.ElevationID, logkey.Error, err)
				}
				w.changed(e)
			}
			if token = next; token == "" {
				break
			}
		}
	}
	return nil
}

// Active returns the elevations that are active at a time. An elevation that was changed in the last seconds may be missing, or still be
// returned after its end.
func (w *Watcher) Active(now time.Time) []ActiveElevation {
	w.mu.Lock()
	defer w.mu.Unlock()
	var active []ActiveElevation
	for id, e := range w.active {
		if !now.Before(e.Expiration) {
			delete(w.active, id)
			continue
		}
		active = append(active, e)
	}
	return active
}

// take handles changes of the container. A document that cannot be decoded is no elevation that admin wrote.
func (w *Watcher) take(ctx context.Context, changes []database.Change) error {
	for _, change := range changes {
		if change.Kind != database.ElevationKind || change.Removed {
			continue
		}
		item, err := database.DecodeChange(w.db.Elevations(), change)
		if err != nil {
			w.log.ErrorContext(ctx, "an elevation cannot be decoded; ignoring", logkey.Error, err)
			continue
		}
		w.verify(ctx, &item.Value)
		w.changed(&item.Value)
	}
	if w.observe == nil {
		return nil
	}
	return w.observe(ctx, changes)
}

// verify counts a change that admin did not make. A change that this process has overtaken is read again: it is set back only if it is still stored.
func (w *Watcher) verify(ctx context.Context, e *database.ElevationDocument) {
	err, reason := w.seals.Verify(e), reasonUnverified
	if errors.Is(err, errSetBack) {
		reason = reasonSetBack
		stored, findErr := w.db.Elevations().Find(ctx, database.ElevationKey(e.ElevationID))
		if findErr == nil && (stored == nil || stored.Removed != nil || w.seals.Verify(&stored.Value) == nil) {
			return
		}
	}
	if err != nil {
		w.refused.WithLabelValues(reason).Inc()
		w.log.ErrorContext(ctx, "somebody else than admin has changed an elevation; it permits nothing", logkey.OperationID, e.ElevationID, logkey.Reason, reason, logkey.Error, err)
	}
}

func (w *Watcher) changed(e *database.ElevationDocument) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Emergency && e.Review == nil {
		w.emergencies[e.ElevationID] = true
	} else {
		delete(w.emergencies, e.ElevationID)
	}
	w.unreviewed.Set(float64(len(w.emergencies)))
	if e.Active(time.Now()) {
		active := ActiveElevation{ID: e.ElevationID, Ticket: e.Actor.Ticket, Class: adminv1.AccessClass(e.Class), Checked: e.StartTime, Expiration: e.ExpirationTime}
		if c := e.TicketCheck; c != nil && c.Waived == "" {
			active.Checked = c.Time
		}
		w.active[e.ElevationID] = active
	} else {
		delete(w.active, e.ElevationID)
	}
	for c := range w.subscribers[e.ElevationID] {
		select {
		case c <- struct{}{}:
		default: // a notification waits already
		}
	}
}

// Subscribe returns a channel that receives a value after each change of an elevation, and a function that ends the subscription.
// Changes in quick succession may have one value.
func (w *Watcher) Subscribe(id string) (changes <-chan struct{}, end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subscriptions >= maxSubscriptions {
		return nil, nil, apierror.New(apierror.Throttled, "Too many requests wait for changes of elevations.").WithRetryAfter(listRetry)
	}
	c := make(chan struct{}, 1)
	if w.subscribers[id] == nil {
		w.subscribers[id] = map[chan struct{}]bool{}
	}
	w.subscribers[id][c] = true
	w.subscriptions++
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.subscriptions--
		if delete(w.subscribers[id], c); len(w.subscribers[id]) == 0 {
			delete(w.subscribers, id)
		}
	}, nil
}
