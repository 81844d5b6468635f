package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Subscriber has the methods of a Maestro client that Receiver uses.
type Subscriber interface {
	Subscribe(ctx context.Context, to maestro.Subscriber)
	Resync(ctx context.Context, held []maestro.Held) error
	Delete(ctx context.Context, b *maestro.Bundle) error
}

const (
	// batchSize is the maximum number of works whose statuses are stored in one transaction.
	batchSize = 64
	// sweepInterval is the interval at which all statuses are requested, to find orphans.
	sweepInterval = 10 * time.Minute
	// storeRetry is the pause after a failure to store statuses. For statuses that fail while others do not, pauses grow up to
	// lastStoreRetry.
	storeRetry     = time.Second
	lastStoreRetry = time.Minute
)

// ReceiverOptions configure a Receiver.
type ReceiverOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Maestro  Subscriber
	// AgentReported is called for shards with a new status from their agent.
	AgentReported func(shard string)
	// AgentHeartbeats is called with the times of the last heartbeats of agents, by shard.
	AgentHeartbeats func(last map[string]time.Time)
	Metrics         *Metrics
	// Sweep is the interval at which orphans are searched; 0 means 10 minutes.
	Sweep time.Duration
	Log   *slog.Logger
}

// report is a status event and its decoded content.
type report struct {
	*maestro.Event
	seen *feedback.Observed
}

// Receiver stores statuses. Of each work only the newest status waits, so memory is bounded by the number of works. A report of
// a deletion is an exception: it is not replaced by a later status, which a late creation causes.
type Receiver struct {
	ReceiverOptions

	mu      sync.Mutex
	pending map[string][]report
	// postponed are the works in pending whose statuses could not be stored while others could.
	postponed map[string]postponement
	arrived   chan struct{}

	// namespaces matches names of namespaces and captures the cluster ID.
	namespaces *regexp.Regexp

	// unknown are the IDs of bundles without a work and without a deletion record. Only the goroutine of process uses it.
	unknown map[string]bool
}

// NewReceiver returns a receiver. Run makes it work.
func NewReceiver(o ReceiverOptions) *Receiver {
	if o.Sweep == 0 {
		o.Sweep = sweepInterval
	}
	return &Receiver{ReceiverOptions: o, pending: map[string][]report{}, postponed: map[string]postponement{}, arrived: make(chan struct{}, 1),
		unknown:    map[string]bool{},
		namespaces: regexp.MustCompile(regexp.QuoteMeta(fleet.Namespace(o.Renderer.Environment, "")) + "([0-9a-v]{32})")}
}

// Run receives statuses until ctx ends.
func (r *Receiver) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() {
		r.Maestro.Subscribe(ctx, maestro.Subscriber{Started: r.resync, Status: r.receive, Heartbeats: r.AgentHeartbeats})
	})
	group.Go(func() { r.process(ctx) })
	group.Go(func() { r.sweep(ctx) })
	group.Wait()
}

// resync requests the statuses that were missed.
func (r *Receiver) resync(ctx context.Context) error {
	works, err := r.Store.AllWorks(ctx)
	if err != nil {
		return err
	}
	held := make([]maestro.Held, 0, len(works))
	for _, w := range works {
		held = append(held, maestro.Held{ResourceID: w.ID, StatusHash: w.StatusHash})
	}
	// Leftovers of forced deletions have no work, and their deletion must still be recorded.
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
	r.Log.Info("subscribed to Maestro; requesting missed statuses", logkey.Count, len(held))
	return r.Maestro.Resync(ctx, held)
}

// sweep requests all statuses at an interval. When the status of a removed work arrives, the work is deleted from Maestro.
func (r *Receiver) sweep(ctx context.Context) {
	ticker := time.NewTicker(r.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := r.Maestro.Resync(ctx, nil); err != nil && ctx.Err() == nil {
				r.Log.Warn("requesting all statuses failed", logkey.Error, err)
			}
		}
	}
}

func (r *Receiver) receive(e *maestro.Event) {
	seen, err := feedback.Decode(e.Body)
	if err != nil {
		r.Metrics.statuses.WithLabelValues("malformed").Inc()
		r.Log.Warn("malformed status ignored", logkey.BundleID, e.ResourceID, logkey.Consumer, e.Consumer, logkey.Error, err)
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

// maxReports is the maximum number of waiting reports of one work.
const maxReports = 4

// enqueue adds a report to the waiting reports of a work.
func enqueue(waiting []report, next report) []report {
	if len(waiting) == 0 {
		return []report{next}
	}
	last := waiting[len(waiting)-1]
	switch {
	case last.seen.Deleted == next.seen.Deleted && !next.seen.Deleted && older(next.Event, statusOrder{last.Version, last.Agent, last.Sequence}):
		return waiting
	case last.seen.Deleted == next.seen.Deleted || len(waiting) >= maxReports:
		waiting[len(waiting)-1] = next
		return waiting
	}
	return append(waiting, next)
}

// dequeue removes one report of each of some works and returns them. later is the time until the first postponed report may be
// tried, zero if there is none.
func (r *Receiver) dequeue(now time.Time) (reports []report, later time.Duration) {
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

// putBack returns reports that could not be stored to the queue, before newer ones.
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
		reports, later := r.dequeue(time.Now())
		if len(reports) == 0 {
			if later == 0 {
				later = time.Hour // nothing is postponed
			}
			select {
			case <-ctx.Done():
				return
			case <-r.arrived:
			case <-time.After(later):
			}
			continue
		}
		left, err := r.applySeparately(ctx, reports)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("storing statuses failed; they will be retried", logkey.Count, len(left), logkey.Error, err)
		r.putBack(left)
		if !store.IsUnavailable(err) {
			r.postpone(time.Now(), left)
			continue
		}
		if backoff.Sleep(ctx, storeRetry) != nil {
			return
		}
	}
}

// apply stores statuses and runs the state machine of their clusters.
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
			r.forgetUnknown(e.ResourceID)
		}
		switch {
		case leftovers[e.ResourceID] != nil && e.seen.Deleted:
			if err := r.leftoverGone(ctx, leftovers[e.ResourceID]); err != nil {
				return err
			}
		case !known && leftovers[e.ResourceID] == nil && !removed[e.ResourceID] && !e.seen.Deleted:
			deleted, err := r.ofDeletedCluster(ctx, e)
			if err != nil {
				return err
			}
			if !deleted {
				r.ignoreUnknown(e)
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
	var removals []removedObject
	err = r.Store.Update(ctx, clusters, func(_ context.Context, tx *store.Tx) error {
		clear(heard)
		removals = nil
		for uid, reports := range byCluster {
			t := tx.Aggregates[uid]
			for _, e := range reports {
				if w := t.WorkByID(e.ResourceID); w != nil {
					outcome := storeStatus(w, e)
					r.Metrics.statuses.WithLabelValues(outcome).Inc()
					// Only statuses with the condition Applied come from the agent. The server reports others itself.
					heard[w.Shard] = heard[w.Shard] || outcome == stored && e.seen.Applied.Status != ""
				}
			}
			known := slices.Clone(t.Cluster.Removals())
			if err := r.Renderer.Region.SettleObserved(r.Store.Now(), t, r.Renderer); err != nil {
				return err
			}
			for _, removed := range fleet.NewRemovals(known, t.Cluster) {
				removals = append(removals, removedObject{uid, removed})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store statuses: %w", err)
	}
	for _, removed := range removals {
		r.countRemoval(removed)
	}
	for shard, reported := range heard {
		if reported {
			r.AgentReported(shard)
		}
	}
	return nil
}

// removedObject is a removal that was stored, with its cluster.
type removedObject struct {
	clusterUID string
	*csv1.ObjectRemoval
}

// countRemoval counts and logs the removal of an object.
func (r *Receiver) countRemoval(o removedObject) {
	r.Metrics.removals.WithLabelValues(o.GetKind(), o.GetProvisionShard()).Inc()
	r.Log.Warn("object removed from a management cluster by another client", logkey.ClusterUID, o.clusterUID, logkey.Shard, o.GetProvisionShard(),
		logkey.Kind, o.GetKind(), logkey.Namespace, o.GetNamespace(), logkey.Name, o.GetName(), logkey.UID, o.GetUid(), logkey.Reason, o.GetReason())
}

// stored is the outcome of storeStatus for a status that was stored.
const stored = "stored"

// storeStatus stores a status in the work's row unless the row has a newer one. It returns the outcome for the metric.
func storeStatus(w *fleet.Work, e report) string {
	seen := e.seen
	if seen.Deleted {
		switch {
		case w.Deleting():
			w.Observed = *seen
			return "deleted"
		case w.Published > 0:
			// Maestro lost a bundle that it had acknowledged: the work is published again.
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
	w.Sequence = statusOrder{e.Version, e.Agent, e.Sequence}.String()
	return stored
}

// statusOrder is the position of a status among those of its work.
type statusOrder struct {
	version  int64
	agent    string
	sequence string
}

func (o statusOrder) String() string { return fmt.Sprintf("%d %s %s", o.version, o.sequence, o.agent) }

func parseOrder(s string) statusOrder {
	var o statusOrder
	version, rest, _ := strings.Cut(s, " ")
	o.version, _ = strconv.ParseInt(version, 10, 64)
	o.sequence, o.agent, _ = strings.Cut(rest, " ")
	return o
}

// older reports whether a status is older than another: it has a lower version, or the same version and agent and a lower
// sequence. Sequences are decimal numbers. Those of different agents cannot be compared.
func older(e *maestro.Event, than statusOrder) bool {
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

// ofDeletedCluster reports whether an unknown bundle belongs to a cluster that is deleted or being deleted. The database lost the work of such a
// bundle, so there is no deletion record, and the deletion of the cluster does not include it. The names of the namespaces in the status
// identify the cluster.
func (r *Receiver) ofDeletedCluster(ctx context.Context, e report) (bool, error) {
	ids := map[string]bool{}
	for _, match := range r.namespaces.FindAllSubmatch(e.Body, -1) {
		ids[string(match[1])] = true
	}
	if len(ids) != 1 {
		return false, nil
	}
	for id := range ids {
		return r.Store.OfDeletedCluster(ctx, e.ResourceID, id)
	}
	return false, nil
}

// maxUnknown is the maximum number of unknown bundles that are counted.
const maxUnknown = 100_000

// ignoreUnknown counts and logs a bundle without a work and without a deletion record. It is not deleted: after the loss of a
// database, the bundle may be the only remaining copy of its cluster. The backend's reconciliation restores the cluster, or an
// operator decides.
func (r *Receiver) ignoreUnknown(e report) {
	r.Metrics.statuses.WithLabelValues("unknown").Inc()
	if r.unknown[e.ResourceID] || len(r.unknown) >= maxUnknown {
		return
	}
	r.unknown[e.ResourceID] = true
	r.Metrics.unknown.Set(float64(len(r.unknown)))
	r.Log.Warn("unknown Maestro bundle without a deletion record; ignoring", logkey.BundleID, e.ResourceID, logkey.Consumer, e.Consumer)
}

// forgetUnknown removes a bundle that has a work, or that was deleted, from the unknown ones.
func (r *Receiver) forgetUnknown(id string) {
	if r.unknown[id] {
		delete(r.unknown, id)
		r.Metrics.unknown.Set(float64(len(r.unknown)))
	}
}

// orphan deletes a bundle of a removed work from Maestro: the late effect of an abandoned request, or a leftover of a forced
// deletion.
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
		r.Log.Warn("deleting an orphan failed; the next sweep finds it again", logkey.BundleID, e.ResourceID, logkey.Consumer, e.Consumer, logkey.Error, err)
		return
	}
	if leftover != nil {
		return
	}
	r.Metrics.orphans.Inc()
	r.Log.Info("orphan deleted", logkey.BundleID, e.ResourceID, logkey.Consumer, e.Consumer)
}

// leftoverGone stores the confirmed deletion of a leftover.
func (r *Receiver) leftoverGone(ctx context.Context, l *fleet.Leftover) error {
	r.Metrics.statuses.WithLabelValues("deleted").Inc()
	if !l.GoneTime.IsZero() {
		return nil
	}
	if err := r.Store.MarkLeftoverGone(ctx, l.WorkID); err != nil {
		return err
	}
	r.Log.Info("leftover of a forced deletion deleted", logkey.ClusterUID, l.ClusterUID, logkey.Work, l.Work, logkey.BundleID, l.WorkID, logkey.Step, l.Step)
	return nil
}
