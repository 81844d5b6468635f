package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// Subscriber is what is needed of a Maestro client to receive.
type Subscriber interface {
	Subscribe(ctx context.Context, started func(ctx context.Context) error, receive func(*maestro.Event))
	Resync(ctx context.Context, held []maestro.Held) error
	Delete(ctx context.Context, b *maestro.Bundle) error
}

const (
	// batchSize bounds the works whose statuses are stored in one transaction: one commit, one step of the clock for all.
	batchSize = 64
	// sweepInterval is how often every status is asked for, to find works without an owner.
	sweepInterval = 10 * time.Minute
	// storeRetry is after what time statuses that could not be stored are tried again; it doubles up to lastStoreRetry for those
	// that could not be while others could.
	storeRetry     = time.Second
	lastStoreRetry = time.Minute
)

// ReceiverOptions are what a receiver works with.
type ReceiverOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Maestro  Subscriber
	// AgentReported is told of shards whose agents reported something new.
	AgentReported func(shard string)
	Metrics       *Metrics
	// Sweep is how often orphans are looked for; 0 means every 10 minutes.
	Sweep time.Duration
}

// report is a status and what it says.
type report struct {
	*maestro.Event
	seen *feedback.Observed
}

// Receiver takes statuses in. Of each work only the newest status waits, so its memory is bounded by the number of works;
// only that a work was gone is not forgotten for a status that came after it, which is of a creation that came too late.
type Receiver struct {
	ReceiverOptions

	mu      sync.Mutex
	pending map[string][]report
	// postponed are the works among them whose statuses cannot be stored, though others can.
	postponed map[string]postponement
	arrived   chan struct{}

	// namespaces finds the cluster ids in the names of namespaces.
	namespaces *regexp.Regexp

	// strangers are bundles that are no work and of which nothing says that they were removed, by id. Only process has them.
	strangers map[string]bool
}

// NewReceiver makes a receiver; Run runs it.
func NewReceiver(o ReceiverOptions) *Receiver {
	if o.Sweep == 0 {
		o.Sweep = sweepInterval
	}
	return &Receiver{ReceiverOptions: o, pending: map[string][]report{}, postponed: map[string]postponement{}, arrived: make(chan struct{}, 1),
		strangers:  map[string]bool{},
		namespaces: regexp.MustCompile(regexp.QuoteMeta(fleet.Namespace(o.Renderer.Environment, "")) + "([0-9a-v]{32})")}
}

// Run receives until ctx is over.
func (r *Receiver) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { r.Maestro.Subscribe(ctx, r.resync, r.receive) })
	group.Go(func() { r.process(ctx) })
	group.Go(func() { r.sweep(ctx) })
	group.Wait()
}

// resync asks for what was missed.
func (r *Receiver) resync(ctx context.Context) error {
	works, err := r.Store.AllWorks(ctx)
	if err != nil {
		return err
	}
	held := make([]maestro.Held, 0, len(works))
	for _, w := range works {
		held = append(held, maestro.Held{ResourceID: w.ID, StatusHash: w.StatusHash})
	}
	// What was forced is nobody's work any more, but its end is still news.
	leftovers, err := r.Store.OpenLeftovers(ctx)
	if err != nil {
		return err
	}
	for _, id := range leftovers {
		held = append(held, maestro.Held{ResourceID: id})
	}
	if err := r.Store.RetryFailedWorks(ctx); err != nil {
		return err
	}
	slog.Info("subscribed to Maestro; asking for what was missed", "works", len(held))
	return r.Maestro.Resync(ctx, held)
}

// sweep asks for every status of ours from time to time. A work that was removed before is deleted when its status arrives.
func (r *Receiver) sweep(ctx context.Context) {
	ticker := time.NewTicker(r.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := r.Maestro.Resync(ctx, nil); err != nil && ctx.Err() == nil {
				slog.Warn("looking for orphans failed", "error", err)
			}
		}
	}
}

func (r *Receiver) receive(e *maestro.Event) {
	seen, err := feedback.Decode(e.Body)
	if err != nil {
		r.Metrics.statuses.WithLabelValues("malformed").Inc()
		slog.Warn("a status was left out", "maestro_id", e.ResourceID, "consumer", e.Consumer, "error", err)
		return
	}
	r.mu.Lock()
	r.pending[e.ResourceID] = enqueue(r.pending[e.ResourceID], report{e, seen})
	r.Metrics.pending.Set(float64(len(r.pending)))
	r.mu.Unlock()
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// maxReports bounds what waits of one work.
const maxReports = 4

// enqueue adds a report to those that wait of a work.
func enqueue(waiting []report, next report) []report {
	if len(waiting) == 0 {
		return []report{next}
	}
	last := waiting[len(waiting)-1]
	switch {
	case last.seen.Deleted == next.seen.Deleted && !next.seen.Deleted && older(next.Event, order3{last.Version, last.Agent, last.Sequence}):
		return waiting
	case last.seen.Deleted == next.seen.Deleted || len(waiting) >= maxReports:
		waiting[len(waiting)-1] = next
		return waiting
	}
	return append(waiting, next)
}

// take takes one report each of some works, and says how long until those that are postponed may be tried; zero if none is.
func (r *Receiver) take(now time.Time) (reports []report, later time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, waiting := range r.pending {
		if len(reports) == batchSize {
			break
		}
		if left := r.postponed[id].until.Sub(now); left > 0 {
			if later == 0 || left < later {
				later = left
			}
			continue
		}
		reports = append(reports, waiting[0])
		if len(waiting) == 1 {
			delete(r.pending, id)
			continue
		}
		r.pending[id] = waiting[1:]
	}
	r.Metrics.pending.Set(float64(len(r.pending)))
	return reports, later
}

// putBack returns reports that could not be stored, in front of those that came since.
func (r *Receiver) putBack(reports []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, first := range reports {
		waiting := []report{first}
		for _, next := range r.pending[first.ResourceID] {
			waiting = enqueue(waiting, next)
		}
		r.pending[first.ResourceID] = waiting
	}
}

func (r *Receiver) process(ctx context.Context) {
	for {
		reports, later := r.take(time.Now())
		if len(reports) == 0 {
			if later == 0 {
				later = time.Hour // nothing waits: only what arrives does
			}
			select {
			case <-ctx.Done():
				return
			case <-r.arrived:
			case <-time.After(later):
			}
			continue
		}
		left, err := r.applyApart(ctx, reports)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		slog.Warn("statuses could not be stored and are tried again", "statuses", len(left), "error", err)
		r.putBack(left)
		if !store.IsUnavailable(err) {
			r.postpone(time.Now(), left)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(storeRetry):
		}
	}
}

// apply stores statuses and has the state machine decide.
func (r *Receiver) apply(ctx context.Context, reports []report) error {
	ids := make([]string, 0, len(reports))
	for _, e := range reports {
		ids = append(ids, e.ResourceID)
	}
	works, err := r.Store.Works(ctx, ids)
	if err != nil {
		return err
	}
	var ownerless []string
	for _, id := range ids {
		if _, known := works[id]; !known {
			ownerless = append(ownerless, id)
		}
	}
	leftovers, removed := map[string]*fleet.Leftover{}, map[string]bool{}
	if len(ownerless) > 0 {
		if leftovers, err = r.Store.Leftovers(ctx, ownerless); err != nil {
			return err
		}
		if removed, err = r.Store.RemovedWorks(ctx, ownerless); err != nil {
			return err
		}
	}
	byCluster := map[string][]report{}
	var clusters []string
	for _, e := range reports {
		w, known := works[e.ResourceID]
		if known || e.seen.Deleted {
			r.acquainted(e.ResourceID)
		}
		switch {
		case leftovers[e.ResourceID] != nil && e.seen.Deleted:
			if err := r.leftoverGone(ctx, leftovers[e.ResourceID]); err != nil {
				return err
			}
		case !known && leftovers[e.ResourceID] == nil && !removed[e.ResourceID] && !e.seen.Deleted:
			gone, err := r.ofGone(ctx, e)
			if err != nil {
				return err
			}
			if !gone {
				r.stranger(e)
				continue
			}
			r.orphan(ctx, e, nil)
		case !known:
			r.orphan(ctx, e, leftovers[e.ResourceID])
		case e.StatusHash != "" && e.StatusHash == w.StatusHash && !e.seen.Deleted:
			r.Metrics.statuses.WithLabelValues("unchanged").Inc()
		default:
			if len(byCluster[w.ClusterUID]) == 0 {
				clusters = append(clusters, w.ClusterUID)
			}
			byCluster[w.ClusterUID] = append(byCluster[w.ClusterUID], e)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	heard := map[string]bool{}
	err = r.Store.Update(ctx, clusters, func(_ context.Context, tx *store.Tx) error {
		clear(heard)
		for uid, reports := range byCluster {
			t := tx.Aggregates[uid]
			for _, e := range reports {
				if w := t.WorkByID(e.ResourceID); w != nil {
					outcome := take(w, e)
					r.Metrics.statuses.WithLabelValues(outcome).Inc()
					// What the server says on its own account is not of the agent, who says whether it applied a work.
					heard[w.Shard] = heard[w.Shard] || outcome == taken && e.seen.Applied.Status != ""
				}
			}
			if err := r.Renderer.Region.SettleObserved(r.Store.Now(), t, r.Renderer); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing statuses: %w", err)
	}
	for shard, is := range heard {
		if is {
			r.AgentReported(shard)
		}
	}
	return nil
}

// taken is what take says of a status that was newer than what the row had.
const taken = "taken"

// take takes a status into a work's row, unless it is older than what the row has, and says what came of it.
func take(w *fleet.Work, e report) string {
	seen := e.seen
	if seen.Deleted {
		switch {
		case w.Deleting():
			w.Observed = *seen
			return "deleted"
		case w.Published > 0:
			// Maestro lost what it had acknowledged: it is published again.
			w.Published, w.Version, w.StatusHash, w.Sequence = 0, 0, "", ""
			w.Observed = feedback.Observed{}
			w.RetryTime = time.Time{}
			return "lost"
		}
		return "unpublished"
	}
	if older(e.Event, parseOrder(w.Sequence)) {
		return "stale"
	}
	w.Observed = *seen
	w.StatusHash = e.StatusHash
	w.Sequence = order3{e.Version, e.Agent, e.Sequence}.String()
	return taken
}

// order3 is where a status stands among those of its work.
type order3 struct {
	version  int64
	agent    string
	sequence string
}

func (o order3) String() string { return fmt.Sprintf("%d %s %s", o.version, o.sequence, o.agent) }

func parseOrder(s string) order3 {
	var o order3
	version, rest, _ := strings.Cut(s, " ")
	o.version, _ = strconv.ParseInt(version, 10, 64)
	o.sequence, o.agent, _ = strings.Cut(rest, " ")
	return o
}

// older says that a status is older than another: of an older version, or of the same version and agent with a smaller
// sequence. Sequences are decimal numbers; those of different agents do not compare.
func older(e *maestro.Event, than order3) bool {
	switch {
	case e.Version != than.version:
		return e.Version < than.version
	case e.Agent != than.agent:
		return false
	case len(e.Sequence) != len(than.sequence):
		return len(e.Sequence) < len(than.sequence)
	}
	return e.Sequence < than.sequence
}

// ofGone says that a bundle is of a cluster that is gone: its deletion was asked for while this database had lost the cluster, and
// so had its works. What it carries stands in namespaces that are named for the cluster.
func (r *Receiver) ofGone(ctx context.Context, e report) (bool, error) {
	ids := map[string]bool{}
	for _, match := range r.namespaces.FindAllSubmatch(e.Body, -1) {
		ids[string(match[1])] = true
	}
	if len(ids) != 1 {
		return false, nil
	}
	for id := range ids {
		return r.Store.ClusterDeleted(ctx, id)
	}
	return false, nil
}

// mostStrangers bounds those that are counted.
const mostStrangers = 100_000

// stranger leaves alone what is no work here, and never was: a database that lost a cluster knows no better, and what Maestro holds
// may be all that there is of it. Its cluster is made known again by whoever promised it, or somebody decides.
func (r *Receiver) stranger(e report) {
	r.Metrics.statuses.WithLabelValues("stranger").Inc()
	if r.strangers[e.ResourceID] || len(r.strangers) >= mostStrangers {
		return
	}
	r.strangers[e.ResourceID] = true
	r.Metrics.strangers.Set(float64(len(r.strangers)))
	slog.Warn("Maestro holds a bundle of ours that is no work, and of which nothing says that it was removed: it is left alone",
		"maestro_id", e.ResourceID, "consumer", e.Consumer)
}

// acquainted notes that a bundle is a work, or gone.
func (r *Receiver) acquainted(id string) {
	if r.strangers[id] {
		delete(r.strangers, id)
		r.Metrics.strangers.Set(float64(len(r.strangers)))
	}
}

// orphan deletes what Maestro holds for us and is known to have been removed: the late effect of a publish that was given up, or
// what was left behind by a deletion that was forced.
func (r *Receiver) orphan(ctx context.Context, e report, leftover *fleet.Leftover) {
	if e.seen.Deleted {
		r.Metrics.statuses.WithLabelValues("unchanged").Inc()
		return
	}
	r.Metrics.statuses.WithLabelValues("orphan").Inc()
	bundle := &maestro.Bundle{ID: e.ResourceID, Name: e.ResourceID, Consumer: e.Consumer}
	if leftover != nil {
		bundle.ReleaseFinalizers = leftover.ReleaseFinalizers
	}
	if err := r.Maestro.Delete(ctx, bundle); err != nil {
		slog.Warn("an orphan could not be deleted; it will be found again", "maestro_id", e.ResourceID, "consumer", e.Consumer, "error", err)
		return
	}
	if leftover != nil {
		return
	}
	r.Metrics.orphans.Inc()
	slog.Info("deleted a work that had been removed before", "maestro_id", e.ResourceID, "consumer", e.Consumer)
}

// leftoverGone notes the end of what a forced deletion had left behind.
func (r *Receiver) leftoverGone(ctx context.Context, l *fleet.Leftover) error {
	r.Metrics.statuses.WithLabelValues("deleted").Inc()
	if !l.GoneTime.IsZero() {
		return nil
	}
	if err := r.Store.MarkLeftoverGone(ctx, l.WorkID); err != nil {
		return err
	}
	slog.Info("what a forced deletion had left behind is gone", "cluster_uid", l.ClusterUID, "work", l.Work, "maestro_id", l.WorkID, "step", l.Step)
	return nil
}
