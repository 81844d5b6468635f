// Package fleetwatch follows Cluster Service's watch and puts every report of an owned group into the inbox. How far
// each group has been dealt with is kept with its lease, so that whoever holds the group next goes on from there, and
// nothing is missed however a replica ends.
package fleetwatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// logInterval is how often a watch that keeps breaking is logged at most.
const logInterval = 15 * time.Second

// saveInterval is how often the revisions are handed to the leases, which save them in their own time.
const saveInterval = 500 * time.Millisecond

// Follower follows the watch for the groups that this replica has.
type Follower struct {
	clusterService *clusterservice.Client
	owner          *partition.Owner
	queue          *eventqueue.Queue
	log            *slog.Logger
	markStale      func(ctx context.Context) error
	reconciler     Reconciler

	// acquired wakes a stream that stands beyond what a new group needs.
	acquired chan struct{}

	mu sync.Mutex
	// joined maps the groups that the stream serves to the revision up to which they had been sent everything when it
	// began.
	joined map[partition.Group]int64
	// broken is set from when a stream has failed until the next one carries something.
	broken bool
}

// Reconciler compares what customers were promised with what the fleet holds; *reconcile.Reconciler is one.
type Reconciler interface {
	// RequestComparison has groups compared, and Suspected says whether that is still to be done.
	RequestComparison(groups []partition.Group)
	ComparisonPending(group partition.Group) bool
}

// New makes a Follower. doubt is called after the fleet was listed anew, and has what is under way asked for: what is not in the
// list was lost, or is of long ago. What is not under way is compared by the reconciler; until it is done the groups keep no revision.
func New(clusterService *clusterservice.Client, owner *partition.Owner, in *eventqueue.Queue, doubt func(ctx context.Context) error, reconciler Reconciler, log *slog.Logger) *Follower {
	return &Follower{
		clusterService: clusterService, owner: owner, queue: in, log: log, markStale: doubt, reconciler: reconciler,
		acquired: make(chan struct{}, 1), joined: map[partition.Group]int64{},
	}
}

// GroupAcquired begins with a group that this replica has got.
func (f *Follower) GroupAcquired(partition.Group) {
	select {
	case f.acquired <- struct{}{}:
	default:
	}
}

// GroupLost ends with a group.
func (f *Follower) GroupLost(group partition.Group) {
	f.mu.Lock()
	delete(f.joined, group)
	f.mu.Unlock()
	f.queue.DropGroup(group)
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { f.saveRevisions(ctx) })
	defer wg.Wait()
	pause := 50 * time.Millisecond
	var said time.Time
	for ctx.Err() == nil {
		started := time.Now()
		err := f.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(started) > 10*time.Second {
			pause = 50 * time.Millisecond
		}
		if err == nil {
			continue
		}
		f.setBroken(true)
		if time.Since(said) > logInterval {
			said = time.Now()
			f.log.WarnContext(ctx, "following Cluster Service; will go on trying", "error", err)
		}
		sleep(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, 2*time.Second)
	}
}

// stream runs one stream for the groups there are now, until it breaks or a group joins that needs an earlier one.
func (f *Follower) stream(ctx context.Context) error {
	after, ok := f.joinGroups()
	if !ok {
		select {
		case <-ctx.Done():
		case <-f.acquired:
			// Groups come one after the other: one stream for those of a moment.
			sleep(ctx, 20*time.Millisecond)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.restartForNew(ctx, cancel) })
	defer wg.Wait()
	defer cancel()
	err := f.follow(ctx, after)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow follows the changes after a revision, or begins with a list when there is none to begin after.
func (f *Follower) follow(ctx context.Context, after int64) error {
	if after == 0 {
		return f.relist(ctx)
	}
	err := f.clusterService.Watch(ctx, after, func(change clusterservice.Change) error {
		if f.setBroken(false) {
			// Cluster Service is back: what waits to be sent there need not wait for its next try.
			f.queue.RequeueAll()
		}
		f.observe(ctx, change)
		f.queue.AdvanceRevision(change.Revision)
		return nil
	})
	if err != nil && apierror.As(err).Reason == clusterservice.ReasonRevisionCompacted {
		return f.relist(ctx)
	}
	return err
}

// observe handles the report of a change. It logs a report that cannot be translated and continues: the resource keeps the
// state of its last report, and an operation that waits for another one ends at its deadline at the latest.
func (f *Follower) observe(ctx context.Context, change clusterservice.Change) {
	if change.Err != nil {
		f.log.ErrorContext(ctx, "ignoring a report of Cluster Service that this release cannot read", logkey.Error, change.Err)
	}
	if change.Report != nil {
		f.report(change.Report)
	}
}

// report puts a report of an owned group into the inbox.
func (f *Follower) report(report *clusterservice.Report) {
	if report.ResourceID == "" {
		r, ok := f.queue.ResourceOfOperation(report.UID)
		if !ok {
			return
		}
		report.ResourceID = string(r)
	}
	if f.isJoined(eventqueue.ResourceOf(report.ResourceID).Group()) {
		f.queue.AddReport(report)
	}
}

// setBroken returns what was so before.
func (f *Follower) setBroken(broken bool) (was bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, f.broken = f.broken, broken
	return was
}

// joinGroups joins the owned groups and returns the earliest revision that one of them needs.
func (f *Follower) joinGroups() (after int64, ok bool) {
	_, sent := f.queue.HandledRevisions()
	f.mu.Lock()
	defer f.mu.Unlock()
	for group, stored := range f.owner.Revisions() {
		before, joined := f.joined[group]
		if joined {
			stored = max(before, sent)
		}
		f.joined[group] = stored
		if !ok || stored < after {
			after, ok = stored, true
		}
	}
	if ok {
		f.queue.ResetRevision(after)
	}
	return after, ok
}

func (f *Follower) isJoined(group partition.Group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, joined := f.joined[group]
	return joined
}

// restartForNew ends the stream when a group was got that it does not serve yet.
func (f *Follower) restartForNew(ctx context.Context, cancel func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.acquired:
		}
		for group := range f.owner.Revisions() {
			if !f.isJoined(group) {
				sleep(ctx, 20*time.Millisecond)
				cancel()
				return
			}
		}
	}
}

// relist is for when Cluster Service no longer keeps the changes that were missed, when it was restored to an earlier state, and
// when it is not known what was missed. Once restored it begins its revisions anew, beyond all that it ever gave, so whatever is
// listed is news; what is not listed has to be asked for. The groups count as listed only when all of that is noted.
func (f *Follower) relist(ctx context.Context) error {
	f.log.InfoContext(ctx, "listing the fleet anew: the changes that were missed are not kept, or not known")
	revision, err := f.clusterService.List(ctx, func(change clusterservice.Change) error {
		f.observe(ctx, change)
		return nil
	})
	if err == nil && revision <= 0 {
		err = errors.New("a list of the fleet is of no revision")
	}
	if err == nil {
		err = f.markStale(ctx)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	var groups []partition.Group
	for group := range f.joined {
		groups = append(groups, group)
		f.joined[group] = revision
	}
	f.reconciler.RequestComparison(groups)
	f.mu.Unlock()
	f.queue.ResetRevision(revision)
	return nil
}

func (f *Follower) saveRevisions(ctx context.Context) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			f.saveRevisionsOnce()
			return
		case <-ticker.C:
			f.saveRevisionsOnce()
		}
	}
}

// saveRevisionsOnce hands the revisions to the leases.
func (f *Follower) saveRevisionsOnce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Read under the lock under which a stream begins: what an earlier stream had sent says nothing of a group that has joined
	// since, and would be noted as dealt with.
	behind, sent := f.queue.HandledRevisions()
	for group, began := range f.joined {
		revision := max(began, sent)
		if first, ok := behind[group]; ok {
			revision = min(revision, first)
		}
		if f.reconciler.ComparisonPending(group) {
			revision = 0
		}
		f.owner.SetRevision(group, revision)
	}
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
