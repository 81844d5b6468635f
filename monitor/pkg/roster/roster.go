// Package roster follows the watch of Cluster Service and keeps the list of all clusters of the region: which of them monitor
// probes, and why it does not probe the others. It never polls.
//
// Package clusterservice resumes a broken watch. If the watch starts with all stored clusters, those that it does not send are removed
// when it has caught up.
package roster

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
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
	follower *clusterservice.Follower
	listener Listener
	options  Options

	mu      sync.Mutex
	entries map[string]Entry
	// pools are the node pools by UID, and poolsOf their UIDs by that of the cluster.
	pools   map[string]pool
	poolsOf map[string]map[string]bool
	// synced is set when all clusters were read once.
	synced bool
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
	r := &Roster{listener: listener, options: options, entries: map[string]Entry{}, pools: map[string]pool{}, poolsOf: map[string]map[string]bool{}, authorities: map[string]string{}}
	r.follower = clusterservice.NewFollower(rpc, r, options.Log)
	return r
}

// Run follows the watch until ctx ends.
func (r *Roster) Run(ctx context.Context) { r.follower.Run(ctx) }

// Ready returns an error until the roster is complete, and while the watch is broken.
func (r *Roster) Ready(ctx context.Context) error { return r.follower.Ready(ctx) }

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

// Restarted implements clusterservice.FollowHandler.
func (r *Roster) Restarted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen = map[string]bool{}
	for uid := range r.entries {
		r.unseen[uid] = true
	}
	for uid := range r.pools {
		r.unseen[uid] = true
	}
}

// Changed implements clusterservice.FollowHandler.
func (r *Roster) Changed(message *clusterservicev1.WatchResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch event := message.GetEvent().(type) {
	case *clusterservicev1.WatchResponse_Cluster:
		r.observe(event.Cluster)
	case *clusterservicev1.WatchResponse_NodePool:
		r.observePool(event.NodePool)
	}
}

// CaughtUp implements clusterservice.FollowHandler.
func (r *Roster) CaughtUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.unseen {
		r.remove(uid)
		r.removePool(uid)
	}
	r.unseen, r.synced = nil, true
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
