// Package inside probes the hosted API servers of one management cluster at the addresses of their Services, and reports what it sees in
// an annotation of each HostedCluster (package internal/hostedreport).
//
// Data flows in from watches of the management cluster (Follow): HostedClusters, and the Service and the authority of each control plane.
// The Prober decides as package judge does, so that one failed probe is no outage. It writes a report when it changes, and one
// cluster's report after another as its heartbeat. It needs no connection but those to the management cluster's API server and to the
// hosted ones, and never reads a Secret. Main is the program monitor-inside, which accepts no connections but those for health and metrics.
package inside

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// The times and bounds of the prober.
const (
	// Interval is the time between two probes of a cluster. It is shorter than monitor's own, because reports need some time to reach it.
	Interval = 10 * time.Second
	// confirmPause follows a result that may change the state of an API.
	confirmPause = 2 * time.Second
	tick         = 100 * time.Millisecond
	slots        = 512
	maxProbes    = 16
	// readyzEvery is the number of probes of which one requests readyz.
	readyzEvery = 4
)

// Cluster is a HostedCluster of the management cluster.
type Cluster struct {
	UID, Namespace, Name string
	// Written is the report in its annotation, or nil.
	Written *hostedreport.InsideReport
}

// Checker sends probes. *probe.Prober implements it.
type Checker interface {
	Probe(ctx context.Context, target probe.Target, check probe.Check) probe.Result
	Forget(cluster string)
}

// Writer writes reports. It returns ErrGone if the HostedCluster does not exist any more.
type Writer interface {
	Write(ctx context.Context, cluster Cluster, report hostedreport.InsideReport) error
}

// Options are the options of a Prober.
type Options struct {
	Metrics *Metrics
	// Interval and Beat replace the defaults if they are greater than 0.
	Interval, Beat time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Prober probes clusters and writes reports. It is safe for concurrent use.
type Prober struct {
	checker Checker
	writer  Writer
	options Options

	mu       sync.Mutex
	clusters map[string]*cluster
	wheel    *probe.Wheel[string]
	// due are the clusters whose probes wait for others to end.
	due     []string
	running int
	// changed are the clusters whose reports are to be written, in this order. changes has a value if there are any.
	changed []string
	changes chan struct{}
	// beaten is when the last report was written, and started when the Prober was created.
	beaten, started time.Time
}

type cluster struct {
	Cluster
	target  probe.Target
	history judge.History
	probing bool
	probes  int
	// pending means that its report is in Prober.changed or being written.
	pending bool
}

// New returns a Prober without clusters.
func New(checker Checker, writer Writer, options Options) *Prober {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Interval <= 0 {
		options.Interval = Interval
	}
	if options.Beat <= 0 {
		options.Beat = hostedreport.InsideBeat
	}
	now := options.Now()
	return &Prober{checker: checker, writer: writer, options: options, clusters: map[string]*cluster{}, wheel: probe.NewWheel[string](tick, slots, now),
		changes: make(chan struct{}, 1), started: now}
}

// Set adds or updates a cluster. Without a URL in its target, it cannot be probed now.
func (p *Prober) Set(next Cluster, target probe.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[next.UID]
	if c == nil {
		c = &cluster{Cluster: next}
		p.clusters[next.UID] = c
		if w := next.Written; w != nil && w.State == hostedreport.InsideUnavailable {
			c.history.Restore(probe.Inside, w.Since) // an outage keeps its beginning
		}
	}
	before := c.target
	c.target = target
	switch {
	case target.URL == "":
		p.wheel.Cancel(next.UID)
		p.checker.Forget(next.UID)
		c.history = judge.History{}
		p.note(c)
	case before.URL == "":
		p.wheel.Schedule(next.UID, p.options.Now())
	}
}

// Remove forgets a cluster.
func (p *Prober) Remove(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[uid]
	if c == nil {
		return
	}
	delete(p.clusters, uid)
	p.wheel.Cancel(uid)
	if !c.probing { // record closes the connection of a running probe
		p.checker.Forget(uid)
	}
}

// Len returns the number of clusters.
func (p *Prober) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.clusters)
}

// Silent returns for how long no report has been written although there are clusters with one; 0 if the last heartbeat was in time.
func (p *Prober) Silent() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.beaten
	if last.IsZero() {
		last = p.started
	}
	if silent := p.options.Now().Sub(last); silent > 2*p.options.Beat && slices.ContainsFunc(p.reported(), func(*cluster) bool { return true }) {
		return silent
	}
	return 0
}

// Run probes until ctx ends. It returns after all probes and writes have ended.
func (p *Prober) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { p.write(ctx) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.begin(ctx, &work)
		}
	}
}

// begin starts the probes that are due, and the heartbeat.
func (p *Prober) begin(ctx context.Context, work *sync.WaitGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.options.Now()
	p.due = append(p.due, p.wheel.Advance(now)...)
	left := p.due[:0]
	for _, uid := range p.due {
		c := p.clusters[uid]
		if c == nil || c.target.URL == "" || c.probing {
			continue
		}
		if p.running >= maxProbes {
			left = append(left, uid)
			continue
		}
		c.probing = true
		p.running++
		target, check := c.target, probe.Livez
		if c.probes%readyzEvery == readyzEvery-1 {
			check = probe.Readyz
		}
		work.Go(func() {
			result := p.checker.Probe(ctx, target, check)
			p.record(c, &result)
		})
	}
	clear(p.due[len(left):])
	p.due = left
	if now.Sub(p.beaten) >= p.options.Beat {
		p.beat(now)
	}
}

// record stores the result of a probe and schedules the next one.
func (p *Prober) record(c *cluster, result *probe.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.probing = false
	p.running--
	if p.clusters[c.UID] != c || c.target.URL == "" {
		p.checker.Forget(c.UID)
		return
	}
	now := p.options.Now()
	result.Vantage = probe.Inside
	c.probes++
	c.history.Add(*result)
	p.options.Metrics.observe(result)
	next := probe.NextTime(c.UID, p.options.Interval, now)
	if pending := c.history.UnavailableSince(probe.Inside).IsZero() == (result.Outcome != probe.OK); pending && result.Outcome != probe.Local {
		next = now.Add(confirmPause) // the state may change: the next results decide
	}
	p.wheel.Schedule(c.UID, next)
	p.note(c)
}

// report returns what is reported about a cluster now, and whether there is anything to report.
func (p *Prober) report(c *cluster) (hostedreport.InsideReport, bool) {
	now := p.options.Now()
	report := c.history.Report(now)
	switch {
	case c.target.URL == "":
		report.Detail = "the Service or the authority of the API server does not exist on the management cluster"
	case report.State == hostedreport.InsideUnknown && report.Detail == "":
		return report, false // the next probes decide
	}
	if report.State == hostedreport.InsideUnknown && c.Written == nil {
		return report, false
	}
	if report.CertificateEnd.IsZero() && c.Written != nil {
		report.CertificateEnd = c.Written.CertificateEnd
	}
	report.CertificateEnd = report.CertificateEnd.UTC()
	if report.Since.IsZero() {
		report.Since = now
		if c.Written != nil && c.Written.State == report.State {
			report.Since = c.Written.Since
		}
	}
	report.Since = report.Since.UTC().Truncate(time.Millisecond)
	report.Observed = now.UTC()
	return report, true
}

// note queues the report of a cluster if it differs from the written one.
func (p *Prober) note(c *cluster) {
	if report, ok := p.report(c); ok && (c.Written == nil || !c.Written.Same(report)) {
		p.enqueue(c)
	}
}

func (p *Prober) enqueue(c *cluster) {
	if c.pending {
		return
	}
	c.pending = true
	p.changed = append(p.changed, c.UID)
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// reported returns the clusters that have a report.
func (p *Prober) reported() []*cluster {
	var all []*cluster
	for _, c := range p.clusters {
		if c.Written != nil {
			all = append(all, c)
		}
	}
	return all
}

// beat queues the report that is the oldest of all, if no other one is being written.
func (p *Prober) beat(now time.Time) {
	all := p.reported()
	if len(p.changed) > 0 || len(all) == 0 || slices.ContainsFunc(all, func(c *cluster) bool { return c.pending }) {
		return
	}
	oldest := slices.MinFunc(all, func(a, b *cluster) int {
		if order := a.Written.Observed.Compare(b.Written.Observed); order != 0 {
			return order
		}
		return strings.Compare(a.UID, b.UID)
	})
	if _, ok := p.report(oldest); ok {
		p.enqueue(oldest)
		return
	}
	// It has no state to report, so that it does not carry the heartbeat now.
	oldest.Written.Observed = now
}
