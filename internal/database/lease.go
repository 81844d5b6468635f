package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// LeaseOptions describe work that the replicas of a service share.
type LeaseOptions struct {
	// Group names the work, for example `backend`. It is the partition of the leases.
	Group string
	// Owner names the replica. A process that starts with the name of an earlier process acquires its leases at once,
	// and the earlier process loses them if it still runs. Two replicas must not use one name.
	Owner string
	// Names are the leases, at most 64, the same in every replica.
	Names []string
	// Duration is how long after a replica's last heartbeat other replicas acquire its leases; 0 means 6 s. A replica
	// that cannot write a heartbeat stops working earlier.
	Duration time.Duration
	Log      *slog.Logger
}

const (
	// saveInterval is the shortest time between two writes of changed positions.
	saveInterval = 2 * time.Second
	// writers is how many leases a replica acquires or releases at the same time.
	writers = 8
)

// Lease is the right of this replica to do one piece of work.
type Lease struct {
	Name string

	mu       sync.Mutex
	position string
	changed  bool

	document leaseDocument
	cancel   context.CancelFunc
	done     chan struct{}
}

// Position returns the position that the previous holder saved last, or an empty string.
func (l *Lease) Position() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position
}

// SetPosition stores how far the work has come. The position is saved every few seconds and when the lease is released.
// After a crash the next holder may find an earlier position.
func (l *Lease) SetPosition(position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = l.changed || position != l.position
	l.position = position
}

// leaseDocument is a lease or the heartbeat of a replica, in the container Leases.
type leaseDocument struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// Owner and Incarnation of the holder, empty if the lease is free. In a heartbeat, of the replica itself.
	Owner       string `json:"owner,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	Position    string `json:"position,omitempty"`
	// Beat grows with every heartbeat. Leases have none.
	Beat int64  `json:"beat,omitempty"`
	TTL  int    `json:"ttl,omitempty"`
	ETag string `json:"_etag,omitempty"`
}

// replicaTTL is how long Cosmos DB keeps the last heartbeat of a replica, in seconds.
const replicaTTL = 60

// leaseStore stores lease documents. write is a compare-and-swap on document.ETag, where an empty ETag creates the
// document. It returns the new ETag, or errLeaseConflict.
type leaseStore interface {
	list(ctx context.Context, group string) ([]leaseDocument, error)
	write(ctx context.Context, document leaseDocument) (etag string, err error)
}

var errLeaseConflict = errors.New("another replica has written the lease")

// RunLeases shares the leases with the other replicas until ctx ends: each running replica holds an equal part. run is
// called for each acquired lease. The context of run ends when the lease is lost or must be released; run must return
// soon after. RunLeases returns after every run has returned.
func (db *DB) RunLeases(ctx context.Context, options LeaseOptions, run func(ctx context.Context, lease *Lease)) error {
	return runLeases(ctx, cosmosLeases{db}, options, run)
}

func runLeases(ctx context.Context, store leaseStore, options LeaseOptions, run func(ctx context.Context, lease *Lease)) error {
	if options.Duration == 0 {
		options.Duration = 6 * time.Second
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	h := &holder{
		store: store, options: options, run: run, incarnation: newUUID(),
		held: map[string]*Lease{}, seen: map[string]sighting{},
	}
	defer h.releaseAll()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		next, err := h.tick(ctx)
		if err != nil && ctx.Err() == nil {
			options.Log.WarnContext(ctx, "renewing leases failed; retrying", logkey.Group, options.Group, logkey.Error, err)
		}
		timer.Reset(time.Until(next))
	}
}

// holder is one replica's part in a group. A lease belongs to the replica that it names as long as that replica writes
// heartbeats, so that one small write renews any number of leases. Each replica measures on its own clock how long a
// heartbeat has not changed; clocks are never compared.
type holder struct {
	store       leaseStore
	options     LeaseOptions
	run         func(ctx context.Context, lease *Lease)
	incarnation string

	held map[string]*Lease
	seen map[string]sighting
	// heartbeat is this replica's heartbeat as last written, and renewed the time when that write began. No other
	// replica can have seen it earlier, so none acquires the leases until Duration has passed since.
	heartbeat leaseDocument
	renewed   time.Time
	saved     time.Time
}

// sighting is a heartbeat of another replica and when this replica first saw it.
type sighting struct {
	etag  string
	since time.Time
}

// tick writes a heartbeat and then balances the leases. It returns when the next tick is due.
func (h *holder) tick(ctx context.Context) (next time.Time, err error) {
	if err := h.renew(ctx); err != nil {
		return h.afterFailure(), err
	}
	// Leases that are not acquired by then are acquired at the next tick, so that the next heartbeat is not late.
	ctx, cancel := context.WithDeadline(ctx, h.renewed.Add(h.options.Duration/2))
	defer cancel()
	next = h.renewed.Add(h.options.Duration / 3)
	documents, err := h.store.list(ctx, h.options.Group)
	if err != nil {
		return next, err
	}
	return next, h.balance(ctx, documents)
}

// renew writes a heartbeat. It tries until the leases must be given up, or for Duration if there are none.
func (h *holder) renew(ctx context.Context) error {
	deadline := time.Now().Add(h.options.Duration)
	if len(h.held) > 0 {
		deadline = h.dropTime()
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := h.writeHeartbeat(ctx)
		if !errors.Is(err, errLeaseConflict) || attempt == 3 {
			return err
		}
		// Often the conflicting write is this process's own, whose response was lost. The stored heartbeat shows this.
		if err := h.readHeartbeat(ctx); err != nil {
			return err
		}
	}
}

func (h *holder) writeHeartbeat(ctx context.Context) error {
	next := h.heartbeat
	next.ID, next.Group, next.TTL = "replica:"+h.options.Owner, h.options.Group, replicaTTL
	next.Owner, next.Incarnation, next.Beat = h.options.Owner, h.incarnation, h.heartbeat.Beat+1
	began := time.Now()
	etag, err := h.store.write(ctx, next)
	if err != nil {
		return fmt.Errorf("writing the heartbeat: %w", err)
	}
	next.ETag = etag
	h.heartbeat, h.renewed = next, began
	return nil
}

// readHeartbeat reads the document that the next heartbeat replaces. A heartbeat of another process with the same name
// is replaced by a process that starts, and makes a running process drop its leases.
func (h *holder) readHeartbeat(ctx context.Context) error {
	documents, err := h.store.list(ctx, h.options.Group)
	if err != nil {
		return err
	}
	h.heartbeat.ETag = ""
	for _, d := range documents {
		if d.ID != "replica:"+h.options.Owner {
			continue
		}
		if h.heartbeat.Beat > 0 && d.Incarnation != h.incarnation {
			h.dropAll()
			return fmt.Errorf("another process runs as replica %q of group %s", h.options.Owner, h.options.Group)
		}
		h.heartbeat.ETag = d.ETag
	}
	return nil
}

// dropTime returns when this replica must have stopped working if it cannot renew. Others acquire the leases soon
// after.
func (h *holder) dropTime() time.Time { return h.renewed.Add(h.options.Duration * 5 / 6) }

// afterFailure drops the leases if it is time, and returns when to try again: soon, as long as there are leases to
// lose.
func (h *holder) afterFailure() time.Time {
	now := time.Now()
	if len(h.held) > 0 && !now.Before(h.dropTime()) {
		h.dropAll()
	}
	if len(h.held) == 0 {
		return now.Add(h.options.Duration / 3)
	}
	if soon := now.Add(h.options.Duration / 12); soon.Before(h.dropTime()) {
		return soon
	}
	return h.dropTime()
}

// balance acquires free leases and releases those beyond this replica's part.
func (h *holder) balance(ctx context.Context, documents []leaseDocument) error {
	live := h.liveReplicas(documents)
	leases := map[string]leaseDocument{}
	for _, d := range documents {
		leases[d.ID] = d
	}
	part := (len(h.options.Names) + len(live) - 1) / len(live)
	var errs []error
	var free []leaseDocument
	for _, name := range h.options.Names {
		d, ok := leases["lease:"+name]
		if !ok {
			d = leaseDocument{ID: "lease:" + name, Group: h.options.Group}
		}
		mine := h.held[name]
		switch {
		case mine != nil && (d.Owner != h.options.Owner || d.Incarnation != h.incarnation):
			h.drop(mine)
		case mine != nil:
			mine.document.ETag = d.ETag
		}
		if h.held[name] == nil && (d.Owner == "" || live[d.Owner] != d.Incarnation || d.Owner == h.options.Owner) {
			free = append(free, d)
		}
	}
	for len(free) > 0 && len(h.held) < part && ctx.Err() == nil {
		n := min(len(free), part-len(h.held), writers)
		errs = append(errs, h.acquire(ctx, free[:n]))
		free = free[n:]
	}
	// A release that failed leaves a lease with the name of this replica, which no other acquires.
	free = slices.DeleteFunc(free, func(d leaseDocument) bool { return d.Owner != h.options.Owner || d.Incarnation != h.incarnation })
	for batch := range slices.Chunk(free, writers) {
		errs = append(errs, h.free(ctx, batch))
	}
	// Leases that cannot be released within this tick stay with this replica until the next.
	for len(h.held) > part && ctx.Err() == nil {
		excess := slices.DeleteFunc(slices.Clone(h.options.Names), func(name string) bool { return h.held[name] == nil })
		errs = append(errs, h.release(ctx, excess[:min(len(h.held)-part, writers)]))
	}
	return errors.Join(append(errs, h.savePositions(ctx))...)
}

// liveReplicas maps the names of the running replicas, including this one, to their incarnations.
func (h *holder) liveReplicas(documents []leaseDocument) map[string]string {
	live := map[string]string{h.options.Owner: h.incarnation}
	present := map[string]bool{}
	for _, d := range documents {
		if d.Beat == 0 || d.Owner == h.options.Owner {
			continue
		}
		present[d.ID] = true
		if last, ok := h.seen[d.ID]; !ok || last.etag != d.ETag {
			h.seen[d.ID] = sighting{d.ETag, time.Now()}
		}
		if time.Since(h.seen[d.ID].since) < h.options.Duration {
			live[d.Owner] = d.Incarnation
		}
	}
	for id := range h.seen {
		if !present[id] {
			delete(h.seen, id)
		}
	}
	return live
}

// writeAll writes documents at the same time, and returns their new ETags and errors.
func (h *holder) writeAll(ctx context.Context, documents []leaseDocument) (etags []string, errs []error) {
	etags, errs = make([]string, len(documents)), make([]error, len(documents))
	var writes sync.WaitGroup
	for i := range documents {
		writes.Go(func() { etags[i], errs[i] = h.store.write(ctx, documents[i]) })
	}
	writes.Wait()
	return etags, errs
}

// acquire acquires leases, except those that another replica acquires meanwhile, and begins their work.
func (h *holder) acquire(ctx context.Context, documents []leaseDocument) error {
	documents = slices.Clone(documents)
	for i := range documents {
		documents[i].Owner, documents[i].Incarnation = h.options.Owner, h.incarnation
	}
	etags, errs := h.writeAll(ctx, documents)
	for i, d := range documents {
		switch {
		case errors.Is(errs[i], errLeaseConflict):
			errs[i] = nil
		case errs[i] != nil:
			errs[i] = fmt.Errorf("acquiring the lease %s: %w", d.ID, errs[i])
		default:
			d.ETag = etags[i]
			h.begin(d)
		}
	}
	return errors.Join(errs...)
}

// begin starts the work of an acquired lease. It outlives the tick: drop and release end it.
func (h *holder) begin(d leaseDocument) {
	ctx, cancel := context.WithCancel(context.Background())
	lease := &Lease{Name: d.ID[len("lease:"):], position: d.Position, document: d, cancel: cancel, done: make(chan struct{})}
	h.held[lease.Name] = lease
	go func() {
		defer close(lease.done)
		h.run(ctx, lease)
	}()
}

// release ends the work of leases and frees them, so that another replica can acquire them at once.
func (h *holder) release(ctx context.Context, names []string) error {
	documents := make([]leaseDocument, len(names))
	for _, name := range names {
		h.held[name].cancel()
	}
	for i, name := range names {
		lease := h.held[name]
		h.drop(lease)
		documents[i] = lease.document
		documents[i].Position = lease.Position()
	}
	return h.free(ctx, documents)
}

// free removes the owner of leases after the end of their work.
func (h *holder) free(ctx context.Context, documents []leaseDocument) error {
	documents = slices.Clone(documents)
	for i := range documents {
		documents[i].Owner, documents[i].Incarnation = "", ""
	}
	_, errs := h.writeAll(ctx, documents)
	for i, d := range documents {
		if errors.Is(errs[i], errLeaseConflict) {
			errs[i] = nil
		} else if errs[i] != nil {
			errs[i] = fmt.Errorf("releasing the lease %s: %w", d.ID, errs[i])
		}
	}
	return errors.Join(errs...)
}

// drop ends the work of a lease that is lost or about to be released.
func (h *holder) drop(lease *Lease) {
	lease.cancel()
	<-lease.done
	delete(h.held, lease.Name)
}

func (h *holder) dropAll() {
	for _, lease := range h.held {
		lease.cancel()
	}
	for _, lease := range h.held {
		h.drop(lease)
	}
}

func (h *holder) releaseAll() {
	for _, lease := range h.held {
		lease.cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.options.Duration/3)
	defer cancel()
	for names := range slices.Chunk(slices.Sorted(maps.Keys(h.held)), writers) {
		if err := h.release(ctx, names); err != nil {
			h.options.Log.Warn("releasing leases failed", logkey.Group, h.options.Group, logkey.Error, err)
		}
	}
}

func (h *holder) savePositions(ctx context.Context) error {
	if time.Since(h.saved) < saveInterval {
		return nil
	}
	h.saved = time.Now()
	for _, name := range slices.Sorted(maps.Keys(h.held)) {
		lease := h.held[name]
		lease.mu.Lock()
		changed := lease.changed
		lease.changed = false
		d := lease.document
		d.Position = lease.position
		lease.mu.Unlock()
		if !changed {
			continue
		}
		etag, err := h.store.write(ctx, d)
		if errors.Is(err, errLeaseConflict) {
			h.drop(lease)
			continue
		}
		if err != nil {
			lease.mu.Lock()
			lease.changed = true
			lease.mu.Unlock()
			return fmt.Errorf("saving the position of the lease %s: %w", d.ID, err)
		}
		d.ETag = etag
		lease.document = d
	}
	return nil
}
