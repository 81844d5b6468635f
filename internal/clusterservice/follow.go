package clusterservice

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The pauses after a watch failed, and the shortest time between two log records about it.
const (
	minFollowPause    = 100 * time.Millisecond
	maxFollowPause    = 2 * time.Second
	followLogInterval = 15 * time.Second
	// stableAfter is how long a watch must have lasted for the next pause to be short.
	stableAfter = 10 * time.Second
)

// FollowHandler receives what a Follower reads, one call at a time.
type FollowHandler interface {
	// Changed handles a change.
	Changed(*clusterservicev1.WatchResponse)
	// Restarted reports that all stored resources follow, until CaughtUp. Resources that are not among them do not exist any more.
	Restarted()
	// CaughtUp reports that all changes up to now were handled.
	CaughtUp()
}

// Follower follows the watch of Cluster Service. A broken watch resumes from the last revision. If Cluster Service does not have the
// changes since then, the watch restarts.
type Follower struct {
	rpc     clusterservicev1.ClusterServiceClient
	handler FollowHandler
	log     *slog.Logger
	// now is the clock of since.
	now func() time.Time
	// changesOnly is set if the watch begins at the current revision.
	changesOnly bool

	mu sync.Mutex
	// revision is that of the last change; 0 while a watch from the beginning has not caught up.
	revision int64
	caughtUp bool
	failure  error
	// since is when the failure began.
	since time.Time
}

// NewFollower returns a Follower. Run follows.
func NewFollower(rpc clusterservicev1.ClusterServiceClient, handler FollowHandler, log *slog.Logger) *Follower {
	return newFollower(rpc, handler, time.Now, log)
}

func newFollower(rpc clusterservicev1.ClusterServiceClient, handler FollowHandler, now func() time.Time, log *slog.Logger) *Follower {
	return &Follower{rpc: rpc, handler: handler, log: log, now: now, failure: errors.New("the watch of Cluster Service has not caught up yet"), since: now()}
}

// NewChangeFollower returns a Follower for handlers that store nothing: its watch begins at the current revision. After each call of
// Restarted, only changes follow, and earlier ones may be missing. now is the clock of Stale.
func NewChangeFollower(rpc clusterservicev1.ClusterServiceClient, handler FollowHandler, now func() time.Time, log *slog.Logger) *Follower {
	f := newFollower(rpc, handler, now, log)
	f.changesOnly = true
	return f
}

// Run follows the watch until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	pauses := backoff.New(minFollowPause, maxFollowPause)
	var logged time.Time
	for ctx.Err() == nil {
		started := time.Now()
		after, err := f.begin(ctx)
		if err == nil {
			err = WatchMessages(ctx, f.rpc, after, func(message *clusterservicev1.WatchResponse) error {
				f.handle(message)
				return nil
			})
		}
		switch {
		case ctx.Err() != nil:
			return
		case apierror.As(err).Reason == ReasonRevisionCompacted:
			f.mu.Lock()
			f.revision, f.caughtUp = 0, false
			f.mu.Unlock()
			continue
		}
		f.fail(err)
		if time.Since(started) > stableAfter {
			pauses.Reset()
		}
		if time.Since(logged) > followLogInterval {
			logged = time.Now()
			f.log.WarnContext(ctx, "watching Cluster Service failed; retrying", logkey.Error, err)
		}
		_ = pauses.Wait(ctx)
	}
}

// begin returns the revision after which the next watch begins. It calls Restarted unless the watch resumes.
func (f *Follower) begin(ctx context.Context) (after int64, err error) {
	f.mu.Lock()
	after = f.revision
	f.mu.Unlock()
	if after != 0 {
		return after, nil
	}
	if f.changesOnly {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		// Each list has the current revision.
		list, err := f.rpc.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: 1})
		if err != nil {
			return 0, apierror.FromGRPC(err)
		}
		after = list.GetRevision()
		f.mu.Lock()
		f.revision, f.caughtUp = after, true
		f.mu.Unlock()
	}
	f.handler.Restarted()
	return after, nil
}

func (f *Follower) handle(message *clusterservicev1.WatchResponse) {
	_, bookmark := message.GetEvent().(*clusterservicev1.WatchResponse_Bookmark)
	if !bookmark {
		f.handler.Changed(message)
	} else {
		f.handler.CaughtUp()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caughtUp = f.caughtUp || bookmark
	if f.caughtUp {
		f.revision, f.failure = message.GetRevision(), nil
	}
}

func (f *Follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		f.since = f.now()
	}
	f.failure = err
}

// Ready returns an error until the watch has caught up, and while it is broken.
func (f *Follower) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// Stale returns since when the watch is broken, or the zero time.
func (f *Follower) Stale() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure == nil {
		return time.Time{}
	}
	return f.since
}
