package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
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
	// ErrUnverified is an error of Open too.
	ErrUnverified = errors.New("the link is not verified; an engineer must assign it again")
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

// RegistryOptions are the options of a Registry.
type RegistryOptions struct {
	Source Source
	Policy *Policy
	// Intents verifies the documents. Keys returns the IDs of its keys: when they change, all documents are verified again.
	Intents adminaction.IntentVerifier
	Keys    func() keyfile.Ring
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
	options RegistryOptions

	// setting is held while documents are verified and set.
	setting sync.Mutex
	// keys are those with which the documents were verified.
	keys keyfile.Ring

	mu sync.Mutex
	// read is the time of the last read of the documents; zero before the first.
	read  time.Time
	links map[uint32]*entry
	// served are the last assignments that were served, by link. Only assignments of engineers are in it.
	served map[uint32]served
	// refused are the documents that were not accepted, by link.
	refused map[uint32]refused
	// gauge has the number of refused documents by reason.
	gauge *prometheus.GaugeVec
	// stale ends all connections when the documents are too old.
	stale *time.Timer
}

// served is an assignment of a link that an engineer requested. requested is the time in the signed intent, with a precision of seconds.
type served struct {
	operation string
	requested time.Time
	removed   bool
}

// refused is a document that was not accepted, for a reason in the metric.
type refused struct {
	document database.EgressLinkDocument
	reason   string
}

// The reasons in the metric of refused documents.
const (
	// unverified is a document for which no signed intent is.
	unverified = "unverified"
	// replayed is a document of an assignment that was replaced or removed.
	replayed = "replayed"
)

// entry is a link with its connections.
type entry struct {
	document    database.EgressLinkDocument
	connections map[*Connection]struct{}
	// opened limits the rate of new connections.
	opened *rate.Limiter
}

// NewRegistry returns a Registry without links. It registers its metrics.
func NewRegistry(options RegistryOptions) *Registry {
	if options.Now == nil {
		options.Now = time.Now
	}
	r := &Registry{options: options, keys: options.Keys(), links: map[uint32]*entry{}, served: map[uint32]served{}, refused: map[uint32]refused{}}
	r.gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gateway_egress_links_refused",
		Help: "Links of the egress gateway whose document is not accepted, by reason: unverified (no signed intent of an engineer is for it) or replayed (its assignment was replaced or removed before)."}, []string{"reason"})
	options.Metrics.MustRegister(r.gauge)
	r.count()
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
			r.set(ctx, &item.Value)
			return nil
		})
		var unreadable *database.UnreadableError
		if errors.As(err, &unreadable) {
			r.options.Log.ErrorContext(ctx, "egress links cannot be decoded; their connections are refused", logkey.Error, err)
			err = nil
		}
		if err == nil {
			noteRead := func() {
				r.followKeys(ctx)
				r.noteRead()
			}
			noteRead()
			feed := database.FeedOptions{IdleInterval: feedIdle, Log: r.options.Log, Read: noteRead}
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
		r.set(ctx, &item.Value)
	}
	return nil
}

// count sets the metric of refused documents. The caller holds mu.
func (r *Registry) count() {
	counts := map[string]float64{unverified: 0, replayed: 0}
	for _, refused := range r.refused {
		counts[refused.reason]++
	}
	for reason, n := range counts {
		r.gauge.WithLabelValues(reason).Set(n)
	}
}

// followKeys verifies all documents again if the keys of admin have changed: a key may have arrived after the document that it signed, or have been withdrawn.
func (r *Registry) followKeys(ctx context.Context) {
	r.setting.Lock()
	defer r.setting.Unlock()
	now := r.options.Keys()
	if now.Primary == r.keys.Primary && slices.Equal(now.IDs, r.keys.IDs) {
		return
	}
	r.keys = now
	r.mu.Lock()
	documents := map[uint32][]database.EgressLinkDocument{}
	for id, e := range r.links {
		documents[id] = append(documents[id], e.document)
	}
	for id, refused := range r.refused {
		documents[id] = append(documents[id], refused.document)
	}
	r.mu.Unlock()
	for id, each := range documents {
		for i := range each {
			r.verify(ctx, id, &each[i])
		}
	}
}

// set takes over a document unless it is the one that the registry has.
func (r *Registry) set(ctx context.Context, document *database.EgressLinkDocument) {
	id, err := database.ParseEgressLinkID(document.LinkID)
	if err != nil {
		r.options.Log.Error("an egress link has an invalid ID; ignoring", logkey.Key, document.LinkID, logkey.Error, err)
		return
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	e, refused := r.links[id], r.refused[id]
	r.mu.Unlock()
	if e != nil && refused.reason == "" && reflect.DeepEqual(e.document, *document) || refused.reason != "" && reflect.DeepEqual(refused.document, *document) {
		return
	}
	r.verify(ctx, id, document)
}

// verify takes over a document that an engineer requested. Connections of the previous cluster end, and those to hosts that are no longer permitted. A document that is
// not verified ends the connections of its link. One that an engineer requested before another one that was served changes nothing.
func (r *Registry) verify(ctx context.Context, id uint32, document *database.EgressLinkDocument) {
	var asked *intent.Intent
	var err error
	if document.RemovedTime == nil {
		asked, err = adminaction.VerifyEgressLink(ctx, r.options.Intents, document)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, last := r.links[id], r.served[id]
	switch {
	case err != nil:
		if e != nil {
			e.end(ErrUnverified)
			delete(r.links, id)
		}
		r.refuse(id, document, unverified, err.Error())
		return
	case asked == nil: // removed
		last.removed = true
		if last.operation != "" {
			r.served[id] = last
		}
	case asked.IssuedAt.Before(last.requested), last.removed && asked.OperationID == last.operation:
		r.refuse(id, document, replayed, "the operation "+last.operation+" has replaced or removed the assignment")
		return
	default:
		r.served[id] = served{operation: asked.OperationID, requested: asked.IssuedAt}
	}
	delete(r.refused, id)
	r.count()
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
		if _, reason := r.options.Policy.Decide(&e.document, *c.asked); reason != Permitted {
			c.cancel(ErrHost)
		}
	}
}

// refuse notes a document that is not accepted.
func (r *Registry) refuse(id uint32, document *database.EgressLinkDocument, reason, message string) {
	r.refused[id] = refused{*document, reason}
	r.count()
	r.options.Log.Error("an egress link is not accepted; assign it again", logkey.Link, document.LinkID, logkey.ClusterUID, document.ClusterUID, logkey.ResourceID, document.ResourceID,
		logkey.OperationID, document.OperationID, logkey.Reason, reason, logkey.Message, message)
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
	asked *Request
}

// Cluster identifies the cluster of a link.
type Cluster struct {
	Link            uint32
	UID, ResourceID string
	Generation      int64
}

// Open counts a connection of a link. The error is ErrUnknown, ErrUnverified, ErrBusy, ErrRate, or ErrStale. The caller must call Close. The context of the connection
// ends with ctx, and with the cause ErrRemoved, ErrUnverified, ErrHost or ErrStale.
func (r *Registry) Open(ctx context.Context, id uint32) (*Connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fresh() {
		return nil, ErrStale
	}
	e := r.links[id]
	switch {
	case e == nil && r.refused[id].reason == unverified:
		return nil, ErrUnverified
	case e == nil:
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
func (c *Connection) Decide(request Request) (host string, reason Reason) {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if host, reason = r.options.Policy.Decide(&c.entry.document, request); reason == Permitted {
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
