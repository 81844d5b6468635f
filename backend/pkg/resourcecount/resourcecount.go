// Package census counts the resources of the owned groups by kind and provisioning state, for a gauge. It learns of every
// change from the change feed, and of what was there before from one listing when this replica gets a group; a scrape adds
// up a few numbers. Of each resource it remembers its name and state only.
package resourcecount

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// class is what is counted together.
type class struct {
	kind  database.Kind
	state hub.ProvisioningState
}

// group is the resources of a group of subscriptions, by their lower-case ARM ids.
type group struct {
	members map[string]class
	totals  map[class]int
}

func newGroup() *group { return &group{map[string]class{}, map[class]int{}} }

// set counts a resource; nil counts it no more.
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

// Collector is a changes.Seeker and a prometheus.Collector.
type Collector struct {
	db    *database.DB
	owns  func(partition.Group) bool
	gauge *prometheus.Desc

	mu     sync.Mutex
	groups map[partition.Group]*group
	// changed is what the feed told of since a listing began, which is newer than what that finds; nil while none is under way.
	changed map[partition.Group]map[string]*class
}

// New makes a Census and registers its gauge.
func New(db *database.DB, owns func(partition.Group) bool, metrics prometheus.Registerer) *Collector {
	c := &Collector{
		db: db, owns: owns, groups: map[partition.Group]*group{},
		gauge: prometheus.NewDesc("backend_resources", "Resources by kind and provisioning state, in the groups of subscriptions of this replica.",
			[]string{"kind", "provisioning_state"}, nil),
	}
	metrics.MustRegister(c)
	return c
}

// classOf is what a resource is counted as; nil when it is removed. ok is false for what has no provisioning state.
func classOf(change database.Change) (of *class, ok bool) {
	state, ok := change.ProvisioningState()
	if !ok || change.Removed {
		return nil, ok
	}
	switch state {
	case hub.Accepted, hub.Provisioning, hub.Updating, hub.Deleting, hub.Succeeded, hub.Failed, hub.Canceled, hub.AwaitingSecret:
	default:
		// Of another release: the gauge's labels stay few, whatever is stored.
		state = "Other"
	}
	return &class{change.Kind, state}, true
}

// HandleChange takes over the state of a resource that was written.
func (c *Collector) HandleChange(_ context.Context, change database.Change) {
	now, ok := classOf(change)
	if !ok {
		return
	}
	g, id := partition.Of(change.Key.SubscriptionID), strings.ToLower(change.Key.ResourceID)
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

// Resync counts everything anew when groups were got. The feed misses nothing after that, so the safety net has nothing to do
// here.
func (c *Collector) Resync(ctx context.Context, refresh bool) error {
	if refresh {
		return nil
	}
	c.mu.Lock()
	c.changed = map[partition.Group]map[string]*class{}
	c.mu.Unlock()
	listed := map[partition.Group]*group{}
	err := c.db.ProvisioningStates(ctx, func(change database.Change) error {
		now, ok := classOf(change)
		if g := partition.Of(change.Key.SubscriptionID); ok && c.owns(g) {
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

// GroupLost forgets a group.
func (c *Collector) GroupLost(g partition.Group) {
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
			continue // lost while a change of it was on its way: another replica counts it
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
