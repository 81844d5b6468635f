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
)

// LeaseOptions describe work that the replicas of a service share.
type LeaseOptions struct {
	// Group names the work, as in `backend`; it is the partition of the leases.
	Group string
	// Owner names the replica. A process that starts under the name of an earlier one takes its leases over at once, and
	// the earlier one, should it still live, loses them; two replicas must not use one name.
	Owner string
	// Names are the pieces of work, at most 64, the same in every replica.
	Names []string
	// Duration is how long after its last sign of life a replica's leases are taken over; 0 means 6 s. A replica that
	// cannot give a sign of life stops working before.
	Duration time.Duration
	Log      *slog.Logger
}

// positionEvery is how often a changed position is saved.
const positionEvery = 2 * time.Second

// Lease is one piece of work while this replica has it.
type Lease struct {
	Name string

	mu       sync.Mutex
	position string
	changed  bool

	document leaseDocument
	cancel   context.CancelFunc
	done     chan struct{}
}

// Position is what the last holder had set when it was last saved; empty at first.
func (l *Lease) Position() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position
}

// SetPosition remembers how far the work has come. It is saved from time to time and when the lease is given back; after
// a crash the next holder may find an earlier one.
func (l *Lease) SetPosition(position string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = l.changed || position != l.position
	l.position = position
}

// leaseDocument is either a lease or a replica's sign of life, in the container Leases.
type leaseDocument struct {
	ID    string `json:"id"`
	Group string `json:"group"`
	// Owner and Incarnation of the holder, empty when the lease is free; in a sign of life, the replica itself.
	Owner       string `json:"owner,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	Position    string `json:"position,omitempty"`
	// Beat grows with every sign of life. A lease has none.
	Beat int64  `json:"beat,omitempty"`
	TTL  int    `json:"ttl,omitempty"`
	ETag string `json:"_etag,omitempty"`
}

// replicaTTL is how long Cosmos DB keeps the sign of life of a replica that is gone.
const replicaTTL = 60

// leaseStore keeps lease documents. write is a compare-and-swap on document.ETag, an empty one creating; it returns the
// document's new ETag, or errLeaseRace.
type leaseStore interface {
	list(ctx context.Context, group string) ([]leaseDocument, error)
	write(ctx context.Context, document leaseDocument) (etag string, err error)
}

var errLeaseRace = errors.New("another replica was faster")

// RunLeases shares the pieces of work with the other replicas until ctx ends: each live replica gets its part of them.
// run is called for each lease that this replica gets; its context ends when the lease is lost, or is to be given to
// another replica, and it must return soon after. RunLeases returns when every run has.
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
			options.Log.WarnContext(ctx, "renewing leases", "group", options.Group, "error", err)
		}
		timer.Reset(time.Until(next))
	}
}

// holder is one replica's side of a group. A lease belongs to the replica that it names as long as that replica gives
// signs of life, so one small write keeps any number of leases. Liveness is judged by what this replica sees change in
// its own time: no two clocks are compared.
type holder struct {
	store       leaseStore
	options     LeaseOptions
	run         func(ctx context.Context, lease *Lease)
	incarnation string

	held map[string]*Lease
	seen map[string]sighting
	// life is the own sign of life as last written, alive the time of that write's beginning: nobody can have seen it earlier, so
	// nobody takes over before Duration has passed since.
	life  leaseDocument
	alive time.Time
	saved time.Time
}

// sighting is since when a replica's sign of life looks as it does.
type sighting struct {
	etag  string
	since time.Time
}

// tick gives a sign of life, and then shares the work. It says when the next tick is due.
func (h *holder) tick(ctx context.Context) (next time.Time, err error) {
	if err := h.renew(ctx); err != nil {
		return h.afterSilence(), err
	}
	// What is not taken by then is taken at the next tick: the next sign of life is not to come late for it.
	ctx, cancel := context.WithDeadline(ctx, h.alive.Add(h.options.Duration/2))
	defer cancel()
	next = h.alive.Add(h.options.Duration / 3)
	documents, err := h.store.list(ctx, h.options.Group)
	if err != nil {
		return next, err
	}
	return next, h.share(ctx, documents)
}

// renew gives a sign of life. It may take until the leases have to be given up; who has none has nothing to lose.
func (h *holder) renew(ctx context.Context) error {
	deadline := time.Now().Add(h.options.Duration)
	if len(h.held) > 0 {
		deadline = h.giveUp()
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := h.giveSignOfLife(ctx)
		if !errors.Is(err, errLeaseRace) || attempt == 3 {
			return err
		}
		// Often it was this process that was faster, with a write whose answer was lost: what is stored tells.
		if err := h.findLife(ctx); err != nil {
			return err
		}
	}
}

func (h *holder) giveSignOfLife(ctx context.Context) error {
	next := h.life
	next.ID, next.Group, next.TTL = "replica:"+h.options.Owner, h.options.Group, replicaTTL
	next.Owner, next.Incarnation, next.Beat = h.options.Owner, h.incarnation, h.life.Beat+1
	began := time.Now()
	etag, err := h.store.write(ctx, next)
	if err != nil {
		return fmt.Errorf("giving a sign of life: %w", err)
	}
	next.ETag = etag
	h.life, h.alive = next, began
	return nil
}

// findLife finds what the next sign of life replaces. One of another process under this name is replaced by a process that
// starts, and stops one that has been there.
func (h *holder) findLife(ctx context.Context) error {
	documents, err := h.store.list(ctx, h.options.Group)
	if err != nil {
		return err
	}
	h.life.ETag = ""
	for _, d := range documents {
		if d.ID != "replica:"+h.options.Owner {
			continue
		}
		if h.life.Beat > 0 && d.Incarnation != h.incarnation {
			h.dropAll()
			return fmt.Errorf("another process runs as replica %q of %s", h.options.Owner, h.options.Group)
		}
		h.life.ETag = d.ETag
	}
	return nil
}

// giveUp is when this replica has to have stopped working, for others take over soon after.
func (h *holder) giveUp() time.Time { return h.alive.Add(h.options.Duration * 5 / 6) }

// afterSilence gives up the leases when it is time to, and says when to try again: soon, while there is something to lose.
func (h *holder) afterSilence() time.Time {
	now := time.Now()
	if len(h.held) > 0 && !now.Before(h.giveUp()) {
		h.dropAll()
	}
	if len(h.held) == 0 {
		return now.Add(h.options.Duration / 3)
	}
	if soon := now.Add(h.options.Duration / 12); soon.Before(h.giveUp()) {
		return soon
	}
	return h.giveUp()
}

// share takes what is free and gives back what is more than this replica's part.
func (h *holder) share(ctx context.Context, documents []leaseDocument) error {
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
	for _, d := range free {
		if len(h.held) >= part {
			break
		}
		errs = append(errs, h.take(ctx, d))
	}
	for _, name := range h.options.Names {
		if lease := h.held[name]; lease != nil && len(h.held) > part {
			errs = append(errs, h.giveBack(ctx, lease))
		}
	}
	return errors.Join(append(errs, h.savePositions(ctx))...)
}

// liveReplicas maps the names of the replicas that are alive, this one among them, to their incarnations.
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

func (h *holder) take(ctx context.Context, d leaseDocument) error {
	d.Owner, d.Incarnation = h.options.Owner, h.incarnation
	etag, err := h.store.write(ctx, d)
	if errors.Is(err, errLeaseRace) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("taking the lease %s: %w", d.ID, err)
	}
	d.ETag = etag
	// The work outlives this tick; drop and giveBack end it.
	runCtx, cancel := context.WithCancel(context.Background())
	lease := &Lease{Name: d.ID[len("lease:"):], position: d.Position, document: d, cancel: cancel, done: make(chan struct{})}
	h.held[lease.Name] = lease
	go func() {
		defer close(lease.done)
		h.run(runCtx, lease)
	}()
	return nil
}

// giveBack ends the work and frees the lease, so that another replica can take it at once.
func (h *holder) giveBack(ctx context.Context, lease *Lease) error {
	h.drop(lease)
	d := lease.document
	d.Owner, d.Incarnation, d.Position = "", "", lease.Position()
	if _, err := h.store.write(ctx, d); err != nil && !errors.Is(err, errLeaseRace) {
		return fmt.Errorf("giving back the lease %s: %w", d.ID, err)
	}
	return nil
}

// drop ends the work of a lease that is lost or about to be given back.
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
	for _, name := range h.options.Names {
		if lease := h.held[name]; lease != nil {
			if err := h.giveBack(ctx, lease); err != nil {
				h.options.Log.Warn("giving back leases", "group", h.options.Group, "error", err)
			}
		}
	}
}

func (h *holder) savePositions(ctx context.Context) error {
	if time.Since(h.saved) < positionEvery {
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
		if errors.Is(err, errLeaseRace) {
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
