package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The bounds of the subscription cache: how long a read may rely on what was seen, and how many are remembered.
const (
	subscriptionFresh = 5 * time.Second
	subscriptionsKept = 10_000
)

// subscriptionCache spares reads from asking for the subscription each time. It is also the collector of
// frontend_lifecycle_state, which shows the subscriptions that it remembers.
type subscriptionCache struct {
	db        *database.DB
	now       func() time.Time
	lifecycle *prometheus.Desc

	mu    sync.Mutex
	known map[string]cachedSubscription
}

type cachedSubscription struct {
	// subscription is nil when there is none.
	subscription *hub.Subscription
	seen         time.Time
}

func newSubscriptionCache(db *database.DB, now func() time.Time) *subscriptionCache {
	return &subscriptionCache{
		db: db, now: now, known: map[string]cachedSubscription{},
		lifecycle: prometheus.NewDesc("frontend_lifecycle_state",
			"Subscriptions by state, among those that this frontend was asked about lately.", []string{"state"}, nil),
	}
}

// get returns a subscription, nil when ARM never told of it. With fresh it asks the store.
func (c *subscriptionCache) get(ctx context.Context, id string, fresh bool) (*hub.Subscription, error) {
	id = strings.ToLower(id)
	if !fresh {
		c.mu.Lock()
		cached, ok := c.known[id]
		c.mu.Unlock()
		// Only what exists is remembered for reads: a subscription may be registered at any moment.
		if ok && cached.subscription != nil && c.now().Sub(cached.seen) < subscriptionFresh {
			return cached.subscription, nil
		}
	}
	seen := c.now()
	item, err := c.db.Subscriptions().Find(ctx, database.SubscriptionKey(id))
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		c.put(id, nil, seen)
		return nil, nil
	}
	c.put(id, &item.Value.Subscription, seen)
	return &item.Value.Subscription, nil
}

// put remembers what was seen, unless something newer is known.
func (c *subscriptionCache) put(id string, subscription *hub.Subscription, seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if subscription == nil {
		delete(c.known, id)
		return
	}
	if cached, ok := c.known[id]; ok && cached.seen.After(seen) {
		return
	}
	if len(c.known) >= subscriptionsKept {
		for other := range c.known {
			delete(c.known, other)
			break
		}
	}
	c.known[id] = cachedSubscription{subscription, seen}
}

// Describe implements prometheus.Collector.
func (c *subscriptionCache) Describe(descs chan<- *prometheus.Desc) { descs <- c.lifecycle }

// Collect implements prometheus.Collector.
func (c *subscriptionCache) Collect(metrics chan<- prometheus.Metric) {
	counts := map[hub.SubscriptionState]int{hub.Registered: 0, hub.Unregistered: 0, hub.Warned: 0, hub.Suspended: 0, hub.Deleted: 0}
	c.mu.Lock()
	for _, cached := range c.known {
		counts[cached.subscription.State]++
	}
	c.mu.Unlock()
	for state, count := range counts {
		metrics <- prometheus.MustNewConstMetric(c.lifecycle, prometheus.GaugeValue, float64(count), string(state))
	}
}

func (s *Server) getSubscription(ctx context.Context, rq *request) error {
	item, err := s.Database.Subscriptions().Find(ctx, database.SubscriptionKey(rq.param(subscriptionParam)))
	if err != nil {
		return err
	}
	if item == nil || item.Removed != nil {
		return apierror.New(apierror.SubscriptionNotFound, "The subscription %s was not found.", rq.param(subscriptionParam))
	}
	rq.w.Header().Set("ETag", item.ETag)
	return rq.w.json(http.StatusOK, item.Value.Subscription)
}

// putSubscription stores how ARM says that a subscription stands. Deleted is final; the backend hears of it and deletes
// every cluster in it, however many there are, while ARM has its answer.
func (s *Server) putSubscription(ctx context.Context, rq *request) error {
	fields, err := rq.object()
	if err != nil {
		return err
	}
	subscription, violations := decodeSubscription(fields)
	if err := apierror.InvalidFields(violations); err != nil {
		return err
	}
	rq.subscription = subscription
	key := database.SubscriptionKey(rq.param(subscriptionParam))
	seen := s.Now()
	err = database.Retry(ctx, func(ctx context.Context) error {
		seen = s.Now()
		item, err := s.Database.Subscriptions().Find(ctx, key)
		if err != nil {
			return err
		}
		batch := s.Database.NewBatch(key.SubscriptionID)
		switch {
		case item == nil || item.Removed != nil:
			database.Create(batch, s.Database.Subscriptions(), key, database.SubscriptionDocument{Subscription: *subscription})
		case item.Value.Subscription.State == hub.Deleted && subscription.State != hub.Deleted:
			return apierror.New(apierror.Conflict, "The subscription is Deleted, which is final.").WithTarget("state")
		default:
			item.Value.Subscription = *subscription
			database.Replace(batch, item)
		}
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	s.subscriptions.put(key.SubscriptionID, subscription, seen)
	return rq.w.json(http.StatusOK, subscription)
}

func decodeSubscription(fields map[string]any) (*hub.Subscription, []apierror.Violation) {
	body := wire.NewBody(fields)
	subscription := &hub.Subscription{
		State: hub.SubscriptionState(body.Enum("state", "", string(hub.Registered), string(hub.Unregistered), string(hub.Warned),
			string(hub.Suspended), string(hub.Deleted))),
		RegistrationDate: body.String("registrationDate", ""),
	}
	if properties := body.Child("properties"); properties != nil {
		subscription.Properties = &hub.SubscriptionProperties{TenantID: properties.String("tenantId", "")}
		for _, feature := range properties.Children("registeredFeatures") {
			subscription.Properties.RegisteredFeatures = append(subscription.Properties.RegisteredFeatures,
				hub.Feature{Name: feature.String("name", ""), State: feature.String("state", "")})
		}
	}
	var required []apierror.Violation
	if subscription.State == "" {
		required = append(required, apierror.Violation{Field: "state", Message: "Required value"})
	}
	if subscription.RegistrationDate == "" {
		required = append(required, apierror.Violation{Field: "registrationDate", Message: "Required value"})
	}
	return subscription, combine(body.Problems(), required)
}
