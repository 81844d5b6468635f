// Package observer probes the clusters of the groups that a replica owns, each at its time, and keeps what it saw: the history of
// each cluster, and what monitor can see at all. Verdicts are computed when they are read. A cluster that does not admit monitor is not
// probed: at the time of its probe, the state that the prober of its management cluster reported is counted.
//
// Data flows in from the roster (Set, Remove) and from the leases (GroupAcquired, GroupLost). A cluster of a lost group is
// forgotten at once, with its connection and its history. All work follows from events: a tick of the wheel costs nothing for
// clusters that are not due.
package observer

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/roster"
)

// Groups is the number of groups of clusters.
const Groups = database.MonitorGroups

// The times of probes.
const (
	// Interval is the time between two probes of a cluster. Its phase follows from the UID.
	Interval = 30 * time.Second
	// confirmPause follows a result that may change the state of an API: the next ones decide.
	confirmPause = 2 * time.Second
	// alertInterval is the time between two probes of an API that is unavailable or was so within alertPeriod.
	alertInterval = 10 * time.Second
	alertPeriod   = 5 * time.Minute
	// readyzEvery is the number of probes of which one requests readyz.
	readyzEvery = 4
)

// The bounds of the observer.
const (
	tick = 100 * time.Millisecond
	// maxProbes is the number of concurrent probes, and maxShardProbes that of one provision shard: an unreachable shard, whose
	// probes take long, does not delay the others.
	maxProbes, maxShardProbes = 64, 16
	// slots is the number of lists of the wheel; with tick they cover more than the longest interval.
	slots = 512
)

// Prober sends probes. *probe.Prober implements it.
type Prober interface {
	Probe(ctx context.Context, target probe.Target, check probe.Check) probe.Result
	Forget(cluster string)
}

// Journal keeps the states of clusters and their transitions. *journal.Journal implements it. Its methods do not wait.
type Journal interface {
	Observe(group partition.Group, uid string, recorded adminv1.Health, verdict *judge.Verdict, failing map[string]time.Time) adminv1.Health
	Remove(group partition.Group, uid string)
	SetBlind(reason string)
}

// Options are the options of an Observer.
type Options struct {
	// Journal keeps the states of clusters; nil means that none are kept.
	Journal Journal
	// Interval replaces the time between two probes of a cluster if it is greater than 0.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Observer probes clusters. It is safe for concurrent use.
type Observer struct {
	prober   Prober
	metrics  *Metrics
	interval time.Duration
	now      func() time.Time
	log      *slog.Logger
	journal  Journal

	mu    sync.Mutex
	owned map[partition.Group]bool
	// restored are the owned groups whose records were read.
	restored map[partition.Group]bool
	entries  map[partition.Group]map[string]roster.Entry
	clusters map[string]*cluster
	wheel    *probe.Wheel[string]
	// waiting are the clusters whose probes are due, in this order. It may have more entries of clusters that do not wait any more.
	waiting []string
	// probers are the probers of the provision shards that have reported one of its clusters.
	probers  map[string]*insideProber
	detector *judge.Detector
	blind    bool
	running  int
	perShard map[string]int
}

// cluster is a cluster of an owned group.
type cluster struct {
	entry   roster.Entry
	history judge.History
	// probing is set while a probe runs. probes counts probes, and samples of a cluster that is not probed; failures and expected are those
	// failures that count for the service level, and those that do not.
	probing bool
	// waiting means that a probe is due and in Observer.waiting; late that it exceeded a bound, and stale that the state has become
	// unknown meanwhile.
	waiting, late, stale       bool
	probes, failures, expected float64
	last                       probe.Result
	// state is the last known state of the API, and changed since when.
	state   judge.API
	changed time.Time
	// recorded is the state in the journal.
	recorded adminv1.Health
}

// sampled reports whether the states that the prober of the management cluster reports are counted, because the API does not admit monitor.
func (c *cluster) sampled() bool { return c.entry.Cluster.Unprobed == judge.Blocked }

// count counts a probe or a sample. expected means that a failure does not count for the service level.
func (c *cluster) count(failed, expected bool) {
	c.probes++
	switch {
	case failed && expected:
		c.expected++
	case failed:
		c.failures++
	}
}

// New returns an Observer that owns no group.
func New(prober Prober, metrics *Metrics, options Options) *Observer {
	if options.Interval <= 0 {
		options.Interval = Interval
	}
	now := options.Now
	if now == nil {
		now = time.Now
	}
	return &Observer{prober: prober, metrics: metrics, interval: options.Interval, now: now, log: options.Log, journal: options.Journal,
		owned: map[partition.Group]bool{}, restored: map[partition.Group]bool{},
		entries: map[partition.Group]map[string]roster.Entry{}, clusters: map[string]*cluster{}, wheel: probe.NewWheel[string](tick, slots, now()),
		probers: map[string]*insideProber{}, detector: judge.NewDetector(), perShard: map[string]int{}}
}

// Run probes until ctx ends. It returns after all probes have ended.
func (o *Observer) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			o.begin(ctx, &probes)
		}
	}
}

// begin starts the probes that are due, in the order in which they became due. Those that exceed a bound wait for the next tick.
func (o *Observer) begin(ctx context.Context, probes *sync.WaitGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	for _, uid := range o.wheel.Advance(now) {
		c := o.clusters[uid]
		if c.sampled() {
			o.sample(c, now)
			continue
		}
		c.waiting = true
		o.waiting = append(o.waiting, uid)
	}
	left := o.waiting[:0]
	for _, uid := range o.waiting {
		c := o.clusters[uid]
		if c == nil || !c.waiting { // forgotten, or no longer probed
			continue
		}
		shard := c.entry.Cluster.Shard
		if c.probing || o.running >= maxProbes || o.perShard[shard] >= maxShardProbes {
			o.delay(c, now)
			left = append(left, uid)
			continue
		}
		c.waiting, c.late, c.stale, c.probing = false, false, false, true
		o.running++
		o.perShard[shard]++
		target, check := c.entry.Target, checkOf(c)
		probes.Go(func() {
			result := o.prober.Probe(ctx, target, check)
			o.record(ctx, c, shard, &result)
		})
	}
	clear(o.waiting[len(left):])
	o.waiting = left
	o.noteView(ctx, o.detector.View(now))
	o.noteSilence(ctx, now)
}

// delay counts a probe that exceeds a bound, and records once that the state of its cluster has become unknown.
func (o *Observer) delay(c *cluster, now time.Time) {
	if !c.late {
		c.late = true
		o.metrics.delayed.Inc()
	}
	if !c.stale && !c.last.Time.IsZero() && now.Sub(c.last.Time) > judge.StaleAfter {
		c.stale = true
		o.keep(c, o.judge(c, now))
	}
}

func checkOf(c *cluster) probe.Check {
	if int(c.probes)%readyzEvery == readyzEvery-1 {
		return probe.Readyz
	}
	return probe.Livez
}

// record stores the result of a probe and schedules the next one.
func (o *Observer) record(ctx context.Context, c *cluster, shard string, result *probe.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.probing = false
	o.running--
	if o.perShard[shard]--; o.perShard[shard] == 0 {
		delete(o.perShard, shard)
	}
	uid := c.entry.UID
	if o.clusters[uid] != c {
		// The group was lost, or the cluster deleted, while the probe ran.
		if o.clusters[uid] == nil {
			o.prober.Forget(uid)
		}
		return
	}
	now := o.now()
	c.last = *result
	c.history.Add(*result)
	o.metrics.observe(result)
	if result.Outcome != probe.Local {
		o.detector.Observe(now, uid, shard, result.Outcome.Reached())
	}
	view := o.detector.View(now)
	o.noteView(ctx, view)
	verdict := o.judge(c, now)
	c.count(result.Outcome != probe.OK && result.Outcome != probe.Local, verdict.During != "" || view.Blind)
	o.noteVerdict(ctx, c, verdict, now)
	if verdict.Reason != judge.NotProbed { // the next probe confirms the first failure
		o.keep(c, verdict)
	}
	if c.entry.Cluster.Unprobed == "" {
		o.wheel.Schedule(uid, o.nextProbe(c, now))
	}
}

// nextProbe returns when a cluster is probed next.
func (o *Observer) nextProbe(c *cluster, now time.Time) time.Time {
	failed, bad := c.last.Outcome != probe.OK, c.state == judge.Unavailable
	switch {
	case c.last.Outcome == probe.Local:
		return now.Add(alertInterval)
	case failed != bad:
		return now.Add(confirmPause)
	}
	return o.nextRegular(c, now)
}

// nextRegular returns when a cluster is probed or sampled next if nothing has to be confirmed.
func (o *Observer) nextRegular(c *cluster, now time.Time) time.Time {
	if !c.changed.IsZero() && now.Sub(c.changed) < alertPeriod {
		return now.Add(alertInterval)
	}
	return probe.NextTime(c.entry.UID, o.interval, now)
}

// sample counts the state of an API that only the prober of the management cluster sees, and schedules the next sample. An unknown state
// does not count.
func (o *Observer) sample(c *cluster, now time.Time) {
	if verdict := o.judge(c, now); verdict.API != judge.Unknown {
		c.count(verdict.API == judge.Unavailable, verdict.During != "")
	}
	o.wheel.Schedule(c.entry.UID, o.nextRegular(c, now))
}

// judge returns the verdict about a cluster.
func (o *Observer) judge(c *cluster, now time.Time) *judge.Verdict {
	view := o.detector.View(now)
	if i := o.probers[c.entry.Cluster.Shard]; i != nil && c.entry.Inside.State != "" {
		c.history.SetInside(&c.entry.Inside, i.seen)
	} else {
		c.history.SetInside(&hostedreport.InsideReport{}, time.Time{})
	}
	verdict := judge.Judge(now, &c.entry.Cluster, &c.history, &view)
	return &verdict
}

// keep records a verdict in the journal if it differs from the recorded one. Until the records of the group were read, it does nothing.
func (o *Observer) keep(c *cluster, verdict *judge.Verdict) {
	group := partition.Of(c.entry.UID, Groups)
	if o.journal == nil || !o.restored[group] {
		return
	}
	var failing map[string]time.Time
	for _, vantage := range probe.Vantages() {
		if since := c.history.UnavailableSince(vantage); !since.IsZero() {
			if failing == nil {
				failing = map[string]time.Time{}
			}
			failing[string(vantage)] = since.UTC()
		}
	}
	c.recorded = o.journal.Observe(group, c.entry.UID, c.recorded, verdict, failing)
}

// Restore continues with the records of a group that another replica wrote, or an earlier process. It returns the UIDs of clusters that
// do not exist.
func (o *Observer) Restore(group partition.Group, records map[string]database.HealthRecord) (unknown []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.owned[group] {
		return nil
	}
	o.restored[group] = true
	now := o.now()
	for uid := range o.entries[group] {
		c := o.clusters[uid]
		if record, ok := records[uid]; ok {
			o.restore(c, &record, now)
		}
		if verdict := o.judge(c, now); verdict.Reason != judge.NotProbed {
			o.keep(c, verdict)
		}
	}
	for uid := range records {
		if o.clusters[uid] == nil {
			unknown = append(unknown, uid)
		}
	}
	return unknown
}

func (o *Observer) restore(c *cluster, record *database.HealthRecord, now time.Time) {
	c.recorded = record.Health
	if since := record.Failing[string(probe.Outside)]; !since.IsZero() && c.entry.Cluster.Unprobed == "" {
		c.history.Restore(probe.Outside, since)
	}
	if c.state == "" && record.Health.API == string(judge.Unavailable) {
		c.state, c.changed = judge.Unavailable, now
	}
}

// firstProbe returns when a cluster is probed first. If its time came within the last half of the interval, its previous owner may have
// missed it, so that it is not left for another interval. These probes are spread, because each one opens a connection.
func (o *Observer) firstProbe(uid string) time.Time {
	now := o.now()
	next := probe.NextTime(uid, o.interval, now)
	if missed := now.Sub(next.Add(-o.interval)); missed < o.interval/2 {
		return now.Add(missed * 2 / 3)
	}
	return next
}

// noteVerdict logs a changed state of an API.
func (o *Observer) noteVerdict(ctx context.Context, c *cluster, verdict *judge.Verdict, now time.Time) {
	if verdict.API == judge.Unknown || verdict.API == c.state {
		return
	}
	before := c.state
	c.state = verdict.API
	if before == "" && verdict.API == judge.Available {
		return // the first verdict of this replica
	}
	c.changed = now
	log := o.log.With(logkey.ClusterUID, c.entry.UID, logkey.ResourceID, c.entry.ResourceID, logkey.Shard, c.entry.Cluster.Shard)
	if verdict.API == judge.Available {
		log.InfoContext(ctx, "the API of a cluster is available again")
		return
	}
	concern := verdict.Concerns[0]
	log.WarnContext(ctx, "the API of a cluster is unavailable", logkey.Reason, string(concern.Kind), logkey.Since, concern.Since.UTC().Format(time.RFC3339),
		logkey.Message, concern.Evidence)
}

// noteView logs that monitor became blind, and that it sees again.
func (o *Observer) noteView(ctx context.Context, view judge.View) {
	if view.Blind == o.blind {
		return
	}
	o.blind = view.Blind
	if o.journal != nil {
		o.journal.SetBlind(view.Reason)
	}
	if o.blind {
		o.log.WarnContext(ctx, "monitor cannot see the clusters; all states are unknown", logkey.Reason, view.Reason)
		return
	}
	o.log.InfoContext(ctx, "monitor sees the clusters again")
}

// Set implements roster.Listener.
func (o *Observer) Set(entry roster.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := partition.Of(entry.UID, Groups)
	if o.entries[group] == nil {
		o.entries[group] = map[string]roster.Entry{}
	}
	o.noteReport(o.entries[group][entry.UID], entry)
	o.entries[group][entry.UID] = entry
	if o.owned[group] {
		o.watch(entry)
	}
}

// Remove implements roster.Listener.
func (o *Observer) Remove(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := partition.Of(uid, Groups)
	o.noteReport(o.entries[group][uid], roster.Entry{})
	if delete(o.entries[group], uid); len(o.entries[group]) == 0 {
		delete(o.entries, group)
	}
	o.forget(uid)
	if o.journal != nil && o.owned[group] {
		o.journal.Remove(group, uid)
	}
}

// ObserveAnchor stores the outcome of a check of an anchor; see probe.CheckAnchors.
func (o *Observer) ObserveAnchor(address, failure string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.detector.ObserveAnchor(address, failure)
}

// GroupAcquired begins to observe the clusters of a group.
func (o *Observer) GroupAcquired(group partition.Group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owned[group] = true
	delete(o.restored, group)
	for _, entry := range o.entries[group] {
		o.watch(entry)
	}
}

// GroupLost forgets the clusters of a group.
func (o *Observer) GroupLost(group partition.Group) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owned, group)
	delete(o.restored, group)
	for uid := range o.entries[group] {
		o.forget(uid)
	}
}

// watch adds or updates a cluster of an owned group.
func (o *Observer) watch(entry roster.Entry) {
	c := o.clusters[entry.UID]
	known := c != nil
	if !known {
		c = &cluster{}
		o.clusters[entry.UID] = c
	}
	probed, sampled, before := known && c.entry.Cluster.Unprobed == "", known && c.sampled(), c.entry.Inside
	c.entry = entry
	switch {
	case entry.Cluster.Unprobed != "" && probed:
		c.waiting = false
		o.wheel.Cancel(entry.UID)
		o.detector.Forget(entry.UID)
		o.prober.Forget(entry.UID)
		c.history, c.last, c.state, c.changed = judge.History{}, probe.Result{}, "", time.Time{}
	case entry.Cluster.Unprobed != "" && sampled && !c.sampled():
		o.wheel.Cancel(entry.UID)
	case entry.Cluster.Unprobed != "":
	case !known:
		o.wheel.Schedule(entry.UID, o.firstProbe(entry.UID))
	case !probed: // it became ready or was allowed: probe it at once
		o.wheel.Schedule(entry.UID, o.now())
	case entry.Inside.State == hostedreport.InsideUnavailable && before.State != hostedreport.InsideUnavailable && !c.waiting && !c.probing:
		// The prober inside, which probes more often, was the first to see an outage: confirm it.
		o.wheel.Schedule(entry.UID, o.now())
	}
	if c.sampled() && !sampled {
		o.wheel.Schedule(entry.UID, probe.NextTime(entry.UID, o.interval, o.now()))
	}
	o.decide(context.Background(), c, o.now())
}

// decide records the verdict about a cluster after something other than a probe of this replica has changed.
func (o *Observer) decide(ctx context.Context, c *cluster, now time.Time) {
	verdict := o.judge(c, now)
	if before := c.state; c.entry.Cluster.Unprobed != "" {
		o.noteVerdict(ctx, c, verdict, now)
		if c.sampled() && c.state == judge.Unavailable && before != c.state {
			o.wheel.Schedule(c.entry.UID, now) // an outage counts from its beginning on
		}
	}
	if verdict.Reason != judge.NotProbed {
		o.keep(c, verdict)
	}
}

func (o *Observer) forget(uid string) {
	c := o.clusters[uid]
	if c == nil {
		return
	}
	delete(o.clusters, uid)
	o.wheel.Cancel(uid)
	o.detector.Forget(uid)
	if !c.probing { // record closes the connection of a running probe
		o.prober.Forget(uid)
	}
}

// Observation is what monitor states about one cluster at a time.
type Observation struct {
	Entry   roster.Entry
	Verdict judge.Verdict
	// Last is the last probe of this replica, or the zero value.
	Last probe.Result
	// Probes is the number of probes of this replica, Failures that of the failed ones which count for the service level, and
	// Expected that of the other failed ones. Of an API that does not admit monitor, they are samples of the reported state.
	Probes, Failures, Expected float64
	CertificateEnd             time.Time
}

// Observations returns the observations of all clusters of owned groups in order of UID, and what monitor can see.
func (o *Observer) Observations() ([]Observation, judge.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	view := o.detector.View(now)
	all := make([]Observation, 0, len(o.clusters))
	for _, c := range o.clusters {
		all = append(all, Observation{Entry: c.entry, Verdict: *o.judge(c, now), Last: c.last,
			Probes: c.probes, Failures: c.failures, Expected: c.expected, CertificateEnd: c.history.CertificateEnd()})
	}
	slices.SortFunc(all, func(a, b Observation) int { return strings.Compare(a.Entry.UID, b.Entry.UID) })
	return all, view
}
