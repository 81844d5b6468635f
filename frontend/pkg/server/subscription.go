package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The bounds of the subscription cache: the age up to which reads use an entry, and the number of entries.
const (
	subscriptionMaxAge     = 5 * time.Second
	maxCachedSubscriptions = 10_000
)

// subscriptionCache saves reads a query for the subscription. It also implements the metric frontend_lifecycle_state,
// which counts the cached subscriptions.
type subscriptionCache struct {
	db        *database.DB
	now       func() time.Time
	lifecycle *prometheus.Desc

	mu      sync.Mutex
	entries map[string]cachedSubscription
}

type cachedSubscription struct {
	item *database.Item[database.SubscriptionDocument]
	seen time.Time
}

func newSubscriptionCache(db *database.DB, now func() time.Time) *subscriptionCache {
	return &subscriptionCache{
		db: db, now: now, entries: map[string]cachedSubscription{},
		lifecycle: prometheus.NewDesc("frontend_lifecycle_state",
			"Number of cached subscriptions, by state.", []string{"state"}, nil),
	}
}

// get returns a subscription, or nil if ARM has not registered it. With fresh it reads the store.
func (c *subscriptionCache) get(ctx context.Context, id string, fresh bool) (*database.Item[database.SubscriptionDocument], error) {
	id = strings.ToLower(id)
	if !fresh {
		c.mu.Lock()
		cached, ok := c.entries[id]
		c.mu.Unlock()
		// Only existing subscriptions are cached for reads, because one may be registered at any moment.
		if ok && c.now().Sub(cached.seen) < subscriptionMaxAge {
			return cached.item, nil
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
	c.put(id, item, seen)
	return item, nil
}

// put caches a subscription unless a newer entry exists.
func (c *subscriptionCache) put(id string, item *database.Item[database.SubscriptionDocument], seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item == nil {
		delete(c.entries, id)
		return
	}
	if cached, ok := c.entries[id]; ok && cached.seen.After(seen) {
		return
	}
	if len(c.entries) >= maxCachedSubscriptions {
		for other := range c.entries {
			delete(c.entries, other)
			break
		}
	}
	c.entries[id] = cachedSubscription{item, seen}
}

// Describe implements prometheus.Collector.
func (c *subscriptionCache) Describe(descs chan<- *prometheus.Desc) { descs <- c.lifecycle }

// Collect implements prometheus.Collector.
func (c *subscriptionCache) Collect(metrics chan<- prometheus.Metric) {
	counts := map[hub.SubscriptionState]int{hub.Registered: 0, hub.Unregistered: 0, hub.Warned: 0, hub.Suspended: 0, hub.Deleted: 0}
	c.mu.Lock()
	for _, cached := range c.entries {
		counts[cached.item.Value.Subscription.State]++
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
	if unchanged, err := rq.notModified(item.ETag); unchanged || err != nil {
		return err
	}
	return rq.w.json(http.StatusOK, item.Value.Subscription)
}

// putSubscription stores the state that ARM reports for a subscription. ARM may change it from any state to any other,
// except that Deleted is final. The response does not wait for the backend, which deletes all clusters of a Deleted
// subscription.
func (s *Server) putSubscription(ctx context.Context, rq *request) error {
	fields, err := rq.object(subscriptionForm)
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
	var stored *database.Item[database.SubscriptionDocument]
	var before hub.SubscriptionState
	err = database.Retry(ctx, func(ctx context.Context) error {
		seen = s.Now()
		item, err := s.Database.Subscriptions().Find(ctx, key)
		if err != nil {
			return err
		}
		item, before = live(item), ""
		if err := rq.preconditions(etagOf(item)); err != nil {
			return err
		}
		batch := s.Database.NewBatch(key.SubscriptionID)
		if item == nil {
			stored = database.Create(batch, s.Database.Subscriptions(), key, database.SubscriptionDocument{Subscription: *subscription})
			return batch.Commit(ctx)
		}
		before = item.Value.Subscription.State
		if before == hub.Deleted && subscription.State != hub.Deleted {
			return apierror.New(apierror.Conflict, "The subscription is Deleted, which is final.").WithTarget("state")
		}
		stored = item
		item.Value.Subscription = *subscription
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
	if err != nil {
		return err
	}
	if before != subscription.State {
		s.Log.InfoContext(ctx, "subscription state changed", logkey.SubscriptionID, key.SubscriptionID, logkey.PreviousState, before, logkey.State, subscription.State,
			logkey.CorrelationID, rq.correlationID)
	}
	s.subscriptions.put(key.SubscriptionID, stored, seen)
	rq.w.Header().Set("ETag", stored.ETag)
	return rq.w.json(http.StatusOK, subscription)
}

// The bounds of a subscription's document.
const (
	maxRegistrationDate = 128
	maxFeatures         = 1000
	maxManagedByTenants = 100
	// maxSubscriptionText bounds a string, maxSubscriptionExtra each value that is stored without interpretation, in
	// bytes.
	maxSubscriptionText  = 512
	maxSubscriptionExtra = 256 << 10
)

// subscriptionForm is the form of ARM's document of a subscription. Others of its fields are not stored.
var subscriptionForm = wire.Fields(map[string]*wire.Form{"state": wire.Scalar(), "registrationDate": wire.Scalar(), "properties": wire.Fields(map[string]*wire.Form{
	"tenantId": wire.Scalar(), "locationPlacementId": wire.Scalar(), "quotaId": wire.Scalar(), "spendingLimit": wire.Scalar(),
	"availabilityZones": wire.TextOfValue(), "additionalProperties": wire.TextOfValue(), // stored without interpretation
	"registeredFeatures": wire.List(maxFeatures, wire.Fields(map[string]*wire.Form{"name": wire.Scalar(), "state": wire.Scalar()})),
	"managedByTenants":   wire.List(maxManagedByTenants, wire.Fields(map[string]*wire.Form{"tenantId": wire.Scalar()})),
})})

// decodeSubscription decodes ARM's document of a subscription and returns all violations.
func decodeSubscription(fields map[string]any) (*hub.Subscription, []apierror.Violation) {
	body := wire.NewBody(fields)
	var violations []apierror.Violation
	report := func(field, format string, args ...any) {
		violations = append(violations, apierror.Violation{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	subscription := &hub.Subscription{
		State: hub.SubscriptionState(body.Enum("state", "", string(hub.Registered), string(hub.Unregistered), string(hub.Warned),
			string(hub.Suspended), string(hub.Deleted))),
		// The date is stored in ARM's own format.
		RegistrationDate: body.String("registrationDate", ""),
	}
	if subscription.State == "" {
		report("state", "Required value")
	}
	if subscription.RegistrationDate == "" {
		report("registrationDate", "Required value")
	}
	if len(subscription.RegistrationDate) > maxRegistrationDate {
		report("registrationDate", "Too long: may not be more than %d bytes", maxRegistrationDate)
	}
	properties := body.Child("properties")
	if properties == nil {
		return subscription, mergeProblems(body.Problems(), violations)
	}
	tenant := func(o *wire.Object, field string) string {
		id := o.String("tenantId", "")
		if id != "" && !validation.IsUUID(id) {
			report(field, "Invalid value: %s: must be a UUID", wire.FormatValue(id))
		}
		return id
	}
	short := func(o *wire.Object, name, field string) string {
		value := o.String(name, "")
		if len(value) > maxSubscriptionText {
			report(field, "Too long: may not be more than %d bytes", maxSubscriptionText)
		}
		return value
	}
	kept := &hub.SubscriptionProperties{
		TenantID:            tenant(properties, "properties.tenantId"),
		LocationPlacementID: short(properties, "locationPlacementId", "properties.locationPlacementId"),
		QuotaID:             short(properties, "quotaId", "properties.quotaId"),
		SpendingLimit:       short(properties, "spendingLimit", "properties.spendingLimit"),
	}
	sent, _ := fields["properties"].(map[string]any)
	for name, keep := range map[string]any{"availabilityZones": &kept.AvailabilityZones, "additionalProperties": &kept.AdditionalProperties} {
		content, ok := sent[name].(wire.Text)
		if !ok {
			continue
		}
		if len(content) > maxSubscriptionExtra {
			report("properties."+name, "Too long: may not be more than %d bytes", maxSubscriptionExtra)
			continue
		}
		// The value gets the form in which the store returns it, with float64 numbers.
		if wire.CheckDuplicates(content) != nil {
			report("properties."+name, wire.DuplicateMessage)
		} else if json.Unmarshal(content, keep) != nil {
			value, _ := content.Value()
			report("properties."+name, "Invalid value: %s: must be an object", wire.FormatValue(value))
		}
	}
	objects := func(name string, most int) []*wire.Object {
		if count := properties.Len(name); count > most {
			report("properties."+name, "%s", wire.TooMany(count, most))
			return nil
		}
		return properties.Children(name)
	}
	for i, o := range objects("registeredFeatures", maxFeatures) {
		if len(violations) > apierror.MaxViolations {
			break
		}
		field := fmt.Sprintf("properties.registeredFeatures[%d].", i)
		feature := hub.Feature{Name: short(o, "name", field+"name"), State: short(o, "state", field+"state")}
		for field, value := range map[string]string{"name": feature.Name, "state": feature.State} {
			if value == "" {
				report(fmt.Sprintf("properties.registeredFeatures[%d].%s", i, field), "Required value")
			}
		}
		kept.RegisteredFeatures = append(kept.RegisteredFeatures, feature)
	}
	for i, o := range objects("managedByTenants", maxManagedByTenants) {
		kept.ManagedByTenants = append(kept.ManagedByTenants, hub.TenantRef{TenantID: tenant(o, fmt.Sprintf("properties.managedByTenants[%d].tenantId", i))})
	}
	subscription.Properties = kept
	return subscription, mergeProblems(body.Problems(), violations)
}
