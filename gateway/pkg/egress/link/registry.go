// Package link holds the links of the egress gateway in memory: which private endpoint belongs to which cluster, and the connections of each. A
// Registry follows the container EgressLinks of Cosmos DB. It ends connections when their link is removed, when their host is no longer permitted,
// and when the documents could not be read for too long.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/policy"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// notReadyAfter is the time without a read of the documents after which the gateway is not ready. It serves connections until
	// database.EgressMaxStaleness, so that one replica without the database gets no new ones, and none is lost while all replicas have none.
	notReadyAfter = database.EgressMaxStaleness / 2
	// feedIdle is the pause between reads of a feed without changes.
	feedIdle = time.Second
	// feedOverlap is how long before the listing the feed begins. The feed has a resolution of a second.
	feedOverlap = 10 * time.Second
	// retryPause is the pause after a listing that failed.
	retryPause = 2 * time.Second
	// burst is the time for which a link that was idle may save up new connections: a node that starts pulls many images at once.
	burst = 10 * time.Second
)

// The causes of contexts of connections that end before their clients end them.
var (
	ErrRemoved = errors.New("the link was removed")
	ErrHost    = errors.New("the host is no longer permitted")
	ErrStale   = errors.New("the links could not be read for too long")
)

// The errors of Open.
var (
	ErrUnknown = errors.New("the link belongs to no cluster")
	ErrBusy    = errors.New("the link has too many connections")
	ErrRate    = errors.New("the link opens too many connections in a short time")
)

// Source has the documents of links.
type Source interface {
	EachEgressLink(ctx context.Context, each func(*database.Item[database.EgressLinkDocument]) error) error
	TailEgressLinks(ctx context.Context, since time.Time, options database.FeedOptions, handler database.Handler) error
	EgressLinks() *database.Collection[database.EgressLinkDocument]
}

// Options are the options of a Registry.
type Options struct {
	Source Source
	Policy *policy.Policy
	// ConnectionsPerLink is the number of connections that one link may have.
	ConnectionsPerLink int
	// NewPerSecond is the number of connections that one link may open per second, on average over burst.
	NewPerSecond int
	// Now is the clock; nil means time.Now. Its times have the monotonic clock.
	Now     func() time.Time
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Registry is the set of links. Run fills it. It is safe for concurrent use.
type Registry struct {
	options Options

	mu sync.Mutex
	// read is the time of the last read of the documents; zero before the first.
	read  time.Time
	links map[uint32]*entry
	// stale ends all connections when the documents are too old.
	stale *time.Timer
}

// entry is a link with its connections.
type entry struct {
	document    database.EgressLinkDocument
	connections map[*Connection]struct{}
	// opened limits the rate of new connections.
	opened *rate.Limiter
}

// NewRegistry returns a Registry without links. It registers its metrics.
func NewRegistry(options Options) *Registry {
	if options.Now == nil {
		options.Now = time.Now
	}
	r := &Registry{options: options, links: map[uint32]*entry{}}
	options.Metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gateway_egress_links", Help: "Links of the egress gateway that belong to a cluster."}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(len(r.links))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gateway_egress_links_age_seconds", Help: "Time since the egress gateway last read the links; -1 before the first time. After 300 s it is not ready, after 600 s it refuses and closes connections."}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.read.IsZero() {
				return -1
			}
			return r.options.Now().Sub(r.read).Seconds()
		}),
	)
	return r
}

// Run follows the documents until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stale != nil {
			r.stale.Stop()
		}
	}()
	for {
		start := r.options.Now()
		err := r.options.Source.EachEgressLink(ctx, func(item *database.Item[database.EgressLinkDocument]) error {
			r.set(&item.Value)
			return nil
		})
		var unreadable *database.UnreadableError
		if errors.As(err, &unreadable) {
			r.options.Log.ErrorContext(ctx, "egress links cannot be decoded; their connections are refused", logkey.Error, err)
			err = nil
		}
		if err == nil {
			r.noteRead()
			feed := database.FeedOptions{IdleInterval: feedIdle, Log: r.options.Log, Read: r.noteRead}
			_ = r.options.Source.TailEgressLinks(ctx, start.Add(-feedOverlap), feed, r.takeChanges) // returns when ctx ends
			return
		}
		if ctx.Err() == nil {
			r.options.Log.WarnContext(ctx, "listing egress links failed; retrying", logkey.Error, err)
		}
		if backoff.Sleep(ctx, retryPause) != nil {
			return
		}
	}
}

// Ready returns an error if the documents were not read recently.
func (r *Registry) Ready(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch age := r.options.Now().Sub(r.read); {
	case r.read.IsZero():
		return errors.New("the egress links were not read yet")
	case age > notReadyAfter:
		return fmt.Errorf("the egress links were last read %s ago", age.Round(time.Second))
	}
	return nil
}

func (r *Registry) fresh() bool {
	return !r.read.IsZero() && r.options.Now().Sub(r.read) <= database.EgressMaxStaleness
}

// noteRead notes that the documents were read, and when all connections end unless they are read again.
func (r *Registry) noteRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = r.options.Now()
	if r.stale == nil {
		r.stale = time.AfterFunc(database.EgressMaxStaleness, r.endStale)
		return
	}
	r.stale.Reset(database.EgressMaxStaleness)
}

// endStale ends all connections. Their links may have been removed.
func (r *Registry) endStale() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh() && r.options.Now().Sub(r.read) < database.EgressMaxStaleness {
		return // read again since the timer fired
	}
	r.options.Log.Error("the egress links could not be read for too long; closing all connections", logkey.Limit, database.EgressMaxStaleness.String())
	for _, e := range r.links {
		e.end(ErrStale)
	}
}

// takeChanges handles changes of the container.
func (r *Registry) takeChanges(ctx context.Context, changes []database.Change) error {
	for _, change := range changes {
		if change.Kind != database.EgressLinkKind || change.Removed {
			continue
		}
		item, err := database.DecodeChange(r.options.Source.EgressLinks(), change)
		if err != nil {
			r.options.Log.ErrorContext(ctx, "an egress link cannot be decoded; ignoring the change", logkey.Error, err)
			continue
		}
		r.set(&item.Value)
	}
	return nil
}

// set takes over a document. Connections of the previous cluster end, and those to hosts that are no longer permitted.
func (r *Registry) set(document *database.EgressLinkDocument) {
	id, err := database.ParseEgressLinkID(document.LinkID)
	if err != nil {
		r.options.Log.Error("an egress link has an invalid ID; ignoring", logkey.Key, document.LinkID, logkey.Error, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.links[id]
	if e != nil && (document.RemovedTime != nil || document.ClusterUID != e.document.ClusterUID || document.Generation != e.document.Generation) {
		e.end(ErrRemoved)
		delete(r.links, id)
		e = nil
	}
	if document.RemovedTime != nil {
		return
	}
	if e == nil {
		perSecond := r.options.NewPerSecond
		e = &entry{connections: map[*Connection]struct{}{}, opened: rate.NewLimiter(rate.Limit(perSecond), perSecond*int(burst/time.Second))}
		r.links[id] = e
	}
	e.document = *document
	for c := range e.connections {
		if c.asked == nil {
			continue
		}
		if _, reason := r.options.Policy.Decide(&e.document, *c.asked); reason != policy.Permitted {
			c.cancel(ErrHost)
		}
	}
}

func (e *entry) end(cause error) {
	for c := range e.connections {
		c.cancel(cause)
	}
}

// Connection is a connection of a link.
type Connection struct {
	// Cluster is the cluster of the link.
	Cluster Cluster

	registry *Registry
	entry    *entry
	ctx      context.Context
	cancel   context.CancelCauseFunc
	// asked is the request that was permitted; nil before.
	asked *policy.Request
}

// Cluster identifies the cluster of a link.
type Cluster struct {
	Link            uint32
	UID, ResourceID string
	Generation      int64
}

// Open counts a connection of a link. The error is ErrUnknown, ErrBusy, ErrRate, or ErrStale. The caller must call Close. The context of the connection ends
// with ctx, and with the cause ErrRemoved, ErrHost or ErrStale.
func (r *Registry) Open(ctx context.Context, id uint32) (*Connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fresh() {
		return nil, ErrStale
	}
	e := r.links[id]
	if e == nil {
		return nil, ErrUnknown
	}
	cluster := Cluster{Link: id, UID: e.document.ClusterUID, ResourceID: e.document.ResourceID, Generation: e.document.Generation}
	if len(e.connections) >= r.options.ConnectionsPerLink {
		return &Connection{Cluster: cluster}, ErrBusy
	}
	if !e.opened.AllowN(r.options.Now(), 1) {
		return &Connection{Cluster: cluster}, ErrRate
	}
	c := &Connection{Cluster: cluster, registry: r, entry: e}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	e.connections[c] = struct{}{}
	return c, nil
}

// Context returns the context of the connection.
func (c *Connection) Context() context.Context { return c.ctx }

// Decide decides about a request with the present document of the link. If it is permitted, the connection ends when it no longer is.
func (c *Connection) Decide(request policy.Request) (host string, reason policy.Reason) {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if host, reason = r.options.Policy.Decide(&c.entry.document, request); reason == policy.Permitted {
		c.asked = &request
	}
	return host, reason
}

// Close ends the connection.
func (c *Connection) Close() {
	c.cancel(nil)
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	delete(c.entry.connections, c)
}

// String returns the ID of the link in decimal form.
func (c Cluster) String() string { return strconv.FormatUint(uint64(c.Link), 10) }
