// Package journal keeps what monitor states about each cluster in Cosmos DB: the state of its API with its concerns, and the
// transitions of both. admin reads it for explanations, and the replica that acquires a group continues with it.
//
// Data flows in from the observer: Observe compares a verdict with the recorded state and stores the difference in memory. Run
// writes the differences, and reports for each group regularly that this replica observes it. Without such a report, a
// recorded state is outdated and readers must not use it. Observe never waits. What was not written before a group is lost is
// dropped: its next owner compares its verdicts with the record.
package journal

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

const (
	// writeInterval is the time between two rounds of writes, and reportInterval that between two reports of a group.
	writeInterval  = time.Second
	reportInterval = 30 * time.Second
	// maxChanges is the number of clusters of which a round writes changes, the urgent ones first, maxWrites that of concurrent requests
	// to Cosmos DB, and writeTimeout the time of one round. The first states of thousands of clusters must not delay the leases.
	maxChanges   = 50
	maxWrites    = 4
	writeTimeout = 20 * time.Second
	// logInterval is the shortest time between two log records about failed requests.
	logInterval = 15 * time.Second
)

// Store stores the records. *database.DB implements it.
type Store interface {
	HealthRecords(ctx context.Context, group int, each func(*database.HealthRecord) error) error
	WriteHealthRecord(ctx context.Context, group int, uid string, exists bool, change func(*database.HealthRecord)) error
	RemoveHealthRecord(ctx context.Context, group int, uid string) error
	WriteGroupReport(ctx context.Context, group int, report database.GroupReport) error
}

// Observer continues with the records of a group. *observer.Observer implements it.
type Observer interface {
	// Restore is called once for each acquired group, with the records of its clusters. It returns the UIDs of those that do not
	// exist.
	Restore(group partition.Group, records map[string]database.HealthRecord) (unknown []string)
}

// Options are the options of a Journal.
type Options struct {
	// Replica names this process in reports.
	Replica string
	// Synced reports whether all clusters of the region are known. Records are not read before.
	Synced func() bool
	// Now is the clock; nil means time.Now.
	Now     func() time.Time
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Journal holds the groups that this replica owns, with what is to be written. It is safe for concurrent use.
type Journal struct {
	store   Store
	options Options
	writes  *prometheus.CounterVec

	mu     sync.Mutex
	groups map[partition.Group]*group
	blind  string
	// failed is when a failure was logged last.
	failed time.Time
}

// group is an owned group.
type group struct {
	loaded bool
	// reported is when the last report was written, and blind what it stated.
	reported time.Time
	blind    string
	// changes are to be written, by UID.
	changes map[string]*change
}

// change is what is to be written about one cluster. It is replaced as a whole while it is written.
type change struct {
	health  adminv1.Health
	failing map[string]time.Time
	entries []adminv1.JournalEntry
	// first means that there was no record, and removed that the record is to be removed.
	first, removed bool
}

// urgent reports whether a change is more than the first state of a working cluster.
func (c *change) urgent() bool { return !c.first || c.health.API != adminv1.HealthAvailable }

// New returns a Journal without groups.
func New(store Store, options Options) *Journal {
	if options.Now == nil {
		options.Now = time.Now
	}
	j := &Journal{store: store, options: options, groups: map[partition.Group]*group{},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monitor_journal_writes_total", Help: "Writes to the container Journal by this replica, by outcome."}, []string{"outcome"})}
	for _, outcome := range []string{"written", "failed"} {
		j.writes.WithLabelValues(outcome)
	}
	options.Metrics.MustRegister(j.writes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "monitor_journal_pending",
		Help: "Clusters whose changes are not written to the container Journal yet."}, func() float64 { return float64(j.Pending()) }))
	return j
}

// Pending returns the number of clusters with changes that are not written.
func (j *Journal) Pending() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	pending := 0
	for _, g := range j.groups {
		pending += len(g.changes)
	}
	return pending
}

// GroupAcquired begins to keep the records of a group.
func (j *Journal) GroupAcquired(number partition.Group) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.groups[number] = &group{changes: map[string]*change{}}
}

// GroupLost drops what is to be written about a group.
func (j *Journal) GroupLost(number partition.Group) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.groups, number)
}

// SetBlind states why monitor cannot see the clusters; empty if it can.
func (j *Journal) SetBlind(reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.blind = reason
}

// Observe compares a verdict with the recorded state of a cluster of an owned group, and returns the new state. failing are the
// vantages from which the API is unavailable.
func (j *Journal) Observe(number partition.Group, uid string, recorded adminv1.Health, verdict *judge.Verdict, failing map[string]time.Time) adminv1.Health {
	now := j.options.Now().UTC()
	health, entries := transitions(now, recorded, verdict)
	if len(entries) == 0 {
		return recorded
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.groups[number]
	if g == nil {
		return recorded
	}
	next := &change{health: health, failing: failing, entries: entries, first: recorded.API == ""}
	if old := g.changes[uid]; old != nil && !old.removed {
		entries = slices.Concat(old.entries, entries)
		next.entries, next.first = entries[max(0, len(entries)-database.JournalEntries):], old.first
	}
	g.changes[uid] = next
	return health
}

// Remove removes the record of a cluster of an owned group.
func (j *Journal) Remove(number partition.Group, uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if g := j.groups[number]; g != nil {
		g.changes[uid] = &change{removed: true}
	}
}

// Run reads the records of acquired groups for an observer and writes changes until ctx ends.
func (j *Journal) Run(ctx context.Context, observer Observer) {
	ticker := time.NewTicker(writeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			j.round(ctx, observer)
		}
	}
}

// round does everything that is due, with bounded concurrency.
func (j *Journal) round(ctx context.Context, observer Observer) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var work errgroup.Group
	work.SetLimit(maxWrites)
	synced, owned := j.options.Synced(), j.owned()
	for number, g := range owned {
		switch {
		case !g.loaded && synced:
			work.Go(func() error { j.load(ctx, number, g, observer); return nil })
		case g.loaded && j.reportDue(g):
			work.Go(func() error { j.report(ctx, number, g); return nil })
		}
	}
	for _, w := range j.due(owned) {
		work.Go(func() error { j.write(ctx, w.number, w.group, w.uid, w.change); return nil })
	}
	_ = work.Wait()
}

func (j *Journal) owned() map[partition.Group]*group {
	j.mu.Lock()
	defer j.mu.Unlock()
	owned := make(map[partition.Group]*group, len(j.groups))
	for number, g := range j.groups {
		owned[number] = g
	}
	return owned
}

// pendingChange is a change with the cluster and the group that it belongs to.
type pendingChange struct {
	number partition.Group
	group  *group
	uid    string
	*change
}

// due returns at most maxChanges changes, the urgent ones first.
func (j *Journal) due(owned map[partition.Group]*group) []pendingChange {
	j.mu.Lock()
	defer j.mu.Unlock()
	var urgent, others []pendingChange
	for number, g := range owned {
		for uid, c := range g.changes {
			switch {
			case len(urgent) >= maxChanges:
				return urgent
			case c.urgent():
				urgent = append(urgent, pendingChange{number, g, uid, c})
			case len(others) < maxChanges:
				others = append(others, pendingChange{number, g, uid, c})
			}
		}
	}
	all := append(urgent, others...)
	return all[:min(len(all), maxChanges)]
}

// owns reports whether a group was not lost meanwhile.
func (j *Journal) owns(number partition.Group, g *group) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.groups[number] == g
}

func (j *Journal) reportDue(g *group) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return g.blind != j.blind || j.options.Now().Sub(g.reported) >= reportInterval
}

// load reads the records of a group, and removes those of clusters that do not exist: they were deleted while nobody owned the group.
func (j *Journal) load(ctx context.Context, number partition.Group, g *group, observer Observer) {
	records := map[string]database.HealthRecord{}
	err := j.store.HealthRecords(ctx, int(number), func(r *database.HealthRecord) error {
		records[r.UID] = *r
		return nil
	})
	if err != nil {
		j.note(ctx, err)
		return
	}
	if !j.owns(number, g) {
		return
	}
	unknown := observer.Restore(number, records)
	j.mu.Lock()
	defer j.mu.Unlock()
	g.loaded = true
	for _, uid := range unknown {
		g.changes[uid] = &change{removed: true}
	}
}

func (j *Journal) report(ctx context.Context, number partition.Group, g *group) {
	if !j.owns(number, g) {
		return
	}
	j.mu.Lock()
	report := database.GroupReport{Replica: j.options.Replica, Time: j.options.Now().UTC(), Blind: j.blind}
	j.mu.Unlock()
	err := j.store.WriteGroupReport(ctx, int(number), report)
	if j.note(ctx, err); err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		g.reported, g.blind = report.Time, report.Blind
	}
}

func (j *Journal) write(ctx context.Context, number partition.Group, g *group, uid string, c *change) {
	if !j.owns(number, g) {
		return
	}
	var err error
	if c.removed {
		err = j.store.RemoveHealthRecord(ctx, int(number), uid)
	} else {
		err = j.store.WriteHealthRecord(ctx, int(number), uid, !c.first, func(r *database.HealthRecord) {
			r.Health, r.Failing = c.health, c.failing
			r.Append(j.options.Now(), c.entries...)
		})
	}
	if j.note(ctx, err); err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if g.changes[uid] == c {
			delete(g.changes, uid)
		}
	}
}

// note counts a request and logs its failure.
func (j *Journal) note(ctx context.Context, err error) {
	if err == nil {
		j.writes.WithLabelValues("written").Inc()
		return
	}
	if ctx.Err() == context.Canceled {
		return
	}
	j.writes.WithLabelValues("failed").Inc()
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.options.Now(); now.Sub(j.failed) >= logInterval {
		j.failed = now
		j.options.Log.WarnContext(ctx, "storing the states of clusters failed; retrying", logkey.Error, err)
	}
}
