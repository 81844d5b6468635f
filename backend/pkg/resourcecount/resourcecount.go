// Package resourcecount counts the resources of the owned groups by kind and provisioning state, for a gauge. It
// follows the change feed, and lists all resources when the replica acquires a group. For each resource it stores only
// the resource ID and the state; a scrape adds up a few numbers.
package resourcecount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// class is the label values under which a resource is counted.
type class struct {
	kind  database.Kind
	state hub.ProvisioningState
}

// group holds the resources of a group of subscriptions by lower-case resource ID.
type group struct {
	members map[string]class
	totals  map[class]int
}

func newGroup() *group { return &group{map[string]class{}, map[class]int{}} }

// set sets the class of a resource; nil removes the resource.
func (g *group) set(id string, now *class) {
	if was, ok := g.members[id]; ok {
		if g.totals[was]--; g.totals[was] == 0 {
			delete(g.totals, was)
		}
		delete(g.members, id)
	}
	if now != nil {
		g.members[id] = *now
		g.totals[*now]++
	}
}

// Collector counts resources. It is a controller.Handler and a prometheus.Collector.
type Collector struct {
	db    *database.DB
	owns  func(controller.Group) bool
	gauge *prometheus.Desc

	mu     sync.Mutex
	groups map[controller.Group]*group
	// changed holds the changes since a listing began, which are newer than the listing; nil if none runs.
	changed map[controller.Group]map[string]*class
}

// New returns a Collector and registers it.
func New(db *database.DB, owns func(controller.Group) bool, metrics prometheus.Registerer) *Collector {
	c := &Collector{
		db: db, owns: owns, groups: map[controller.Group]*group{},
		gauge: prometheus.NewDesc("backend_resources", "Resources in the groups of this replica, by kind and provisioning state.",
			[]string{"kind", "provisioning_state"}, nil),
	}
	metrics.MustRegister(c)
	return c
}

// classOf returns the class of a document, or nil if it is removed. ok is false for documents without a provisioning
// state.
func classOf(change database.Change) (of *class, ok bool) {
	state, ok := change.ProvisioningState()
	if !ok || change.Removed {
		return nil, ok
	}
	switch state {
	case hub.Accepted, hub.Provisioning, hub.Updating, hub.Deleting, hub.Succeeded, hub.Failed, hub.Canceled, hub.AwaitingSecret:
	default:
		// A state of another release; the number of label values stays bounded.
		state = "Other"
	}
	return &class{change.Kind, state}, true
}

// HandleChange updates the class of a written resource.
func (c *Collector) HandleChange(_ context.Context, change database.Change) {
	now, ok := classOf(change)
	if !ok {
		return
	}
	g, id := controller.GroupOf(change.Key.SubscriptionID), strings.ToLower(change.Key.ResourceID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups[g] == nil {
		c.groups[g] = newGroup()
	}
	c.groups[g].set(id, now)
	if c.changed == nil {
		return
	}
	if c.changed[g] == nil {
		c.changed[g] = map[string]*class{}
	}
	c.changed[g][id] = now
}

// Resync lists all resources after groups were acquired. The feed misses no later change, so periodic resyncs do
// nothing.
func (c *Collector) Resync(ctx context.Context, refresh bool) error {
	if refresh {
		return nil
	}
	c.mu.Lock()
	c.changed = map[controller.Group]map[string]*class{}
	c.mu.Unlock()
	listed := map[controller.Group]*group{}
	err := c.db.ProvisioningStates(ctx, func(change database.Change) error {
		now, ok := classOf(change)
		if g := controller.GroupOf(change.Key.SubscriptionID); ok && c.owns(g) {
			if listed[g] == nil {
				listed[g] = newGroup()
			}
			listed[g].set(strings.ToLower(change.Key.ResourceID), now)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.changed
	c.changed = nil
	var unreadable *database.UnreadableError
	if err != nil && !errors.As(err, &unreadable) {
		return fmt.Errorf("counting the resources: %w", err)
	}
	for g, changes := range heard {
		if listed[g] == nil {
			listed[g] = newGroup()
		}
		for id, now := range changes {
			listed[g].set(id, now)
		}
	}
	for g := range listed {
		if !c.owns(g) {
			delete(listed, g)
		}
	}
	c.groups = listed
	if unreadable != nil {
		return fmt.Errorf("counting the resources: %w", unreadable)
	}
	return nil
}

// GroupLost removes a group.
func (c *Collector) GroupLost(g controller.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, g)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) { descs <- c.gauge }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	totals := map[class]int{}
	c.mu.Lock()
	for number, g := range c.groups {
		if !c.owns(number) {
			continue // another replica counts the group now
		}
		for of, n := range g.totals {
			totals[of] += n
		}
	}
	c.mu.Unlock()
	for of, n := range totals {
		metrics <- prometheus.MustNewConstMetric(c.gauge, prometheus.GaugeValue, float64(n), string(of.kind), string(of.state))
	}
}
