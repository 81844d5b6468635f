// Package roster follows the watch of Cluster Service and keeps the list of all clusters of the region: which of them monitor
// probes, and why it does not probe the others. It never polls.
//
// A broken watch resumes from the last revision. If Cluster Service does not have the changes since then, the watch starts with all
// stored clusters, and those that it does not send are removed when it has caught up.
package roster

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The pauses after the watch failed, and the shortest time between two log records about it.
const (
	minPause    = 100 * time.Millisecond
	maxPause    = 2 * time.Second
	logInterval = 15 * time.Second
	// stableAfter is how long a watch must have lasted for the next pause to be short.
	stableAfter = 10 * time.Second
)

// maxAuthorities is the number of different authorities that clusters share.
const maxAuthorities = 256

// Listener receives the changes of the roster, one at a time.
type Listener interface {
	// Set adds or replaces an entry. Remove removes it.
	Set(Entry)
	Remove(uid string)
}

// Options are the options of a Roster.
type Options struct {
	// Addresses are those from which API servers see monitor's connections.
	Addresses []netip.Addr
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Roster is the list of all clusters. Run fills it.
type Roster struct {
	rpc      clusterservicev1.ClusterServiceClient
	listener Listener
	options  Options

	mu      sync.Mutex
	entries map[string]Entry
	// pools are the node pools by UID, and poolsOf their UIDs by that of the cluster.
	pools    map[string]pool
	poolsOf  map[string]map[string]bool
	revision int64
	synced   bool
	failure  error
	// authorities are the last different authorities of serving certificates.
	authorities map[string]string
	// unseen are the clusters and node pools that a watch from the beginning has not sent yet; nil if the watch has caught up.
	unseen map[string]bool
}

// New returns an empty Roster.
func New(rpc clusterservicev1.ClusterServiceClient, listener Listener, options Options) *Roster {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Roster{rpc: rpc, listener: listener, options: options, entries: map[string]Entry{}, pools: map[string]pool{}, poolsOf: map[string]map[string]bool{}, authorities: map[string]string{}, unseen: map[string]bool{}}
}

// Run follows the watch until ctx ends.
func (r *Roster) Run(ctx context.Context) {
	pauses := backoff.New(minPause, maxPause)
	var logged time.Time
	for ctx.Err() == nil {
		started := time.Now()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierror.As(err).Reason == clusterservice.ReasonRevisionCompacted {
			r.restart()
			continue
		}
		r.setFailure(err)
		if time.Since(started) > stableAfter {
			pauses.Reset()
		}
		if time.Since(logged) > logInterval {
			logged = time.Now()
			r.options.Log.WarnContext(ctx, "watching Cluster Service failed; retrying", logkey.Error, err)
		}
		_ = pauses.Wait(ctx)
	}
}

// Ready returns an error until the roster is complete, and while the watch is broken.
func (r *Roster) Ready(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced {
		return errors.Join(errors.New("the clusters have not been read from Cluster Service yet"), r.failure)
	}
	return r.failure
}

// Synced reports whether all clusters were read from Cluster Service once.
func (r *Roster) Synced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced
}

// Len returns the number of clusters.
func (r *Roster) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

// follow handles one watch. It returns when the watch ends, with an *apierror.Error.
func (r *Roster) follow(ctx context.Context) error {
	r.mu.Lock()
	after := r.revision
	r.mu.Unlock()
	return clusterservice.WatchMessages(ctx, r.rpc, after, func(message *clusterservicev1.WatchResponse) error {
		r.handle(message)
		return nil
	})
}

// restart makes the next watch start with all stored clusters.
func (r *Roster) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision, r.unseen = 0, map[string]bool{}
	for uid := range r.entries {
		r.unseen[uid] = true
	}
	for uid := range r.pools {
		r.unseen[uid] = true
	}
}

func (r *Roster) setFailure(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

func (r *Roster) handle(message *clusterservicev1.WatchResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = nil
	switch event := message.GetEvent().(type) {
	case *clusterservicev1.WatchResponse_Cluster:
		r.observe(event.Cluster)
	case *clusterservicev1.WatchResponse_NodePool:
		r.observePool(event.NodePool)
	case *clusterservicev1.WatchResponse_Bookmark:
		for uid := range r.unseen {
			r.remove(uid)
			r.removePool(uid)
		}
		r.unseen, r.synced = nil, true
	}
	if r.unseen == nil {
		// An interrupted watch from the beginning begins again.
		r.revision = message.GetRevision()
	}
}

func (r *Roster) observe(c *clusterservicev1.Cluster) {
	uid := c.GetUid()
	delete(r.unseen, uid)
	if c.GetStatus().GetPhase() == clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED {
		r.remove(uid)
		return
	}
	var known *Entry
	if entry, ok := r.entries[uid]; ok {
		known = &entry
	}
	entry := entryOf(c, known, r.options.Addresses, r.options.Now())
	entry.Target.Authorities = r.shared(entry.Target.Authorities)
	entry.Cluster.Nodes = r.nodesOf(uid)
	if known != nil && *known == entry {
		return
	}
	r.entries[uid] = entry
	r.listener.Set(entry)
}

// shared returns the same string for equal authorities. Most clusters have the same ones, which are longer than everything else about a
// cluster.
func (r *Roster) shared(authorities string) string {
	if known, ok := r.authorities[authorities]; ok {
		return known
	}
	if len(r.authorities) >= maxAuthorities {
		clear(r.authorities)
	}
	r.authorities[authorities] = authorities
	return authorities
}

func (r *Roster) remove(uid string) {
	if _, ok := r.entries[uid]; ok {
		delete(r.entries, uid)
		r.listener.Remove(uid)
	}
}
