package eventqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// logInterval is the shortest time between two log records about a failing watch.
const logInterval = 15 * time.Second

// saveInterval is how often the handled revisions are passed to the leases, which save them at their own interval.
const saveInterval = 500 * time.Millisecond

// The pauses after the watch failed, and the pause after a group was acquired.
const (
	minWatchBackoff = 50 * time.Millisecond
	maxWatchBackoff = 2 * time.Second
	acquirePause    = 20 * time.Millisecond
)

// ReportFollower follows the watch for the groups of this replica.
type ReportFollower struct {
	clusterService *clusterservice.Client
	owner          *controller.Owner
	queue          *Queue
	log            *slog.Logger
	markStale      func(ctx context.Context) error
	reconciler     Reconciler

	// acquired is notified when a group is acquired, which may need an earlier revision than the stream's.
	acquired chan struct{}

	mu sync.Mutex
	// joined maps the groups that the stream serves to the revision that was received for them before the stream began.
	joined map[controller.Group]int64
	// broken is set after a stream has failed, until the next one receives something.
	broken bool
}

// Reconciler compares the desired state with the fleet. *reconcile.Reconciler implements it.
type Reconciler interface {
	// RequestComparison requests a comparison of groups. ComparisonPending reports whether one is pending.
	RequestComparison(groups []controller.Group)
	ComparisonPending(group controller.Group) bool
}

// NewReportFollower returns a ReportFollower. markStale is called after the fleet was listed, and marks all active operations as stale: a
// resource that is not in the list was lost, or deleted long ago. The reconciler compares resources without an
// operation; until then the groups have no handled revision.
func NewReportFollower(clusterService *clusterservice.Client, owner *controller.Owner, queue *Queue, markStale func(ctx context.Context) error, reconciler Reconciler, log *slog.Logger) *ReportFollower {
	return &ReportFollower{
		clusterService: clusterService, owner: owner, queue: queue, log: log, markStale: markStale, reconciler: reconciler,
		acquired: make(chan struct{}, 1), joined: map[controller.Group]int64{},
	}
}

// GroupAcquired starts following a group.
func (f *ReportFollower) GroupAcquired(controller.Group) {
	select {
	case f.acquired <- struct{}{}:
	default:
	}
}

// GroupLost stops following a group.
func (f *ReportFollower) GroupLost(group controller.Group) {
	f.mu.Lock()
	delete(f.joined, group)
	f.mu.Unlock()
	f.queue.DropGroup(group)
}

// Run follows the watch until ctx ends.
func (f *ReportFollower) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { f.saveRevisions(ctx) })
	defer wg.Wait()
	pauses := backoff.New(minWatchBackoff, maxWatchBackoff)
	var logged time.Time
	for ctx.Err() == nil {
		started := time.Now()
		err := f.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(started) > 10*time.Second {
			pauses.Reset()
		}
		if err == nil {
			continue
		}
		f.setBroken(true)
		if time.Since(logged) > logInterval {
			logged = time.Now()
			f.log.WarnContext(ctx, "watching Cluster Service failed; retrying", logkey.Error, err)
		}
		_ = pauses.Wait(ctx)
	}
}

// stream follows the watch for the current groups until it breaks, or until a group is acquired that the stream does
// not serve.
func (f *ReportFollower) stream(ctx context.Context) error {
	after, ok := f.joinGroups()
	if !ok {
		select {
		case <-ctx.Done():
		case <-f.acquired:
			// Groups are acquired in quick succession: wait for all of them before starting a stream.
			_ = backoff.Sleep(ctx, acquirePause)
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

// follow watches the changes after a revision. It lists the fleet if there is no such revision.
func (f *ReportFollower) follow(ctx context.Context, after int64) error {
	if after == 0 {
		return f.relist(ctx)
	}
	err := f.clusterService.Watch(ctx, after, func(change clusterservice.Change) error {
		if f.setBroken(false) {
			// Cluster Service is available again: retry all waiting requests at once.
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
func (f *ReportFollower) observe(ctx context.Context, change clusterservice.Change) {
	if change.Err != nil {
		f.log.ErrorContext(ctx, "ignoring a report of Cluster Service that this release cannot read", logkey.Error, change.Err)
	}
	if change.Report != nil {
		f.report(change.Report)
	}
}

// report adds a report of an owned group to the queue.
func (f *ReportFollower) report(report *clusterservice.Report) {
	if report.ResourceID == "" {
		r, ok := f.queue.ResourceOfOperation(report.UID)
		if !ok {
			return
		}
		report.ResourceID = string(r)
	}
	if f.isJoined(ResourceOf(report.ResourceID).Group()) {
		f.queue.AddReport(report)
	}
}

// setBroken sets broken and returns the previous value.
func (f *ReportFollower) setBroken(broken bool) (was bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, f.broken = f.broken, broken
	return was
}

// joinGroups joins the owned groups and returns the earliest revision that one of them needs.
func (f *ReportFollower) joinGroups() (after int64, ok bool) {
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

func (f *ReportFollower) isJoined(group controller.Group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, joined := f.joined[group]
	return joined
}

// restartForNew cancels the stream when a group is acquired that it does not serve.
func (f *ReportFollower) restartForNew(ctx context.Context, cancel func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.acquired:
		}
		for group := range f.owner.Revisions() {
			if !f.isJoined(group) {
				_ = backoff.Sleep(ctx, acquirePause)
				cancel()
				return
			}
		}
	}
}

// relist lists the whole fleet. It is called if Cluster Service no longer has the missed changes, if it was restored to
// an earlier state, or if the last handled revision is unknown. A restored Cluster Service starts with revisions beyond
// all earlier ones, so that every listed report is newer than the known one. Resources that are not in the list are
// marked as stale. The groups count as listed only after that.
func (f *ReportFollower) relist(ctx context.Context) error {
	f.log.InfoContext(ctx, "listing the whole fleet: missed changes are unknown or no longer stored")
	revision, err := f.clusterService.List(ctx, func(change clusterservice.Change) error {
		f.observe(ctx, change)
		return nil
	})
	if err == nil && revision <= 0 {
		err = errors.New("listing the fleet: the list has no revision")
	}
	if err == nil {
		err = f.markStale(ctx)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	var groups []controller.Group
	for group := range f.joined {
		groups = append(groups, group)
		f.joined[group] = revision
	}
	f.reconciler.RequestComparison(groups)
	f.mu.Unlock()
	f.queue.ResetRevision(revision)
	return nil
}

func (f *ReportFollower) saveRevisions(ctx context.Context) {
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

// saveRevisionsOnce passes the handled revisions to the leases.
func (f *ReportFollower) saveRevisionsOnce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Hold the lock, because joinGroups needs it to start a stream: what an earlier stream has received does not count
	// for a group that has joined since.
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
