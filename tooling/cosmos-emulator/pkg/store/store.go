// Package store keeps databases, containers and items durably in one bbolt file and hands out their changes in
// commit order. All writes pass through one goroutine that takes whatever requests are waiting, runs them one
// after another in one transaction and acknowledges them after the transaction's fsync: that gives group commit,
// serialisable batches and, because every write gets its log sequence number (LSN) in the order in which it
// commits, a change feed in which nothing can appear behind a reader's back. Reads are bbolt snapshots, so they
// never see a write that a crash could still take away. The store must never acknowledge before the fsync.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Options configure a store.
type Options struct {
	// Path of the file; it is created when absent and locked while open.
	Path string
	// Now is the clock for timestamps and expiry; time.Now when nil.
	Now func() time.Time
	// ReapInterval is how often expired items are removed; a second when zero. They are invisible from the moment
	// they expire, so the interval only bounds disk use.
	ReapInterval time.Duration
	Logger       *slog.Logger
}

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	db      *bolt.DB
	now     func() time.Time
	log     *slog.Logger
	catalog atomic.Pointer[catalog]
	lastTS  int64 // owned by the writer: timestamps never go backwards
	folders *folders

	ops     chan *op
	stop    chan struct{}
	closing sync.Once
	done    sync.WaitGroup
	broken  atomic.Pointer[error]
	stats   Stats
}

// Stats counts what the writer did. Read it with atomic loads through Store.Stats.
type Stats struct {
	Groups, Ops uint64
}

const (
	// maxGroup bounds how many requests share one fsync, and with it how long the first one waits for the last.
	maxGroup = 256
	// queueLength bounds the requests that wait for the writer; callers block beyond it.
	queueLength = 1024
	// initialMmap is address space, not memory: it spares readers the wait for a remap while the file grows.
	initialMmap = 1 << 30
)

var (
	bucketDatabases  = []byte("databases")
	bucketContainers = []byte("containers")
	bucketOffers     = []byte("offers")
	bucketMeta       = []byte("meta")
	keyFormat        = []byte("format")
	formatVersion    = []byte("hcpmesh-cosmos-1")

	// ErrClosed is the answer to writes after Close.
	ErrClosed = errors.New("the store is closed")
)

// op is one request to the writer. run may be called more than once, each time on a transaction that holds no
// trace of the time before; it either returns an *Error and has written nothing, or has done all its writes. It
// says whether there were any: a group without writes needs no fsync.
type op struct {
	ctx       context.Context
	exclusive bool // changes the catalog: runs in a transaction of its own
	run       func(tx *bolt.Tx) (wrote bool, err error)
	after     func() // runs in the writer after the commit
	err       error
	finished  chan struct{}
}

// Open opens or creates a store.
func Open(o Options) (*Store, error) {
	db, err := bolt.Open(o.Path, 0o600, &bolt.Options{
		Timeout:         time.Second,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: initialMmap,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s (is another emulator using it?): %w", o.Path, err)
	}
	s := &Store{db: db, now: o.Now, log: o.Logger, ops: make(chan *op, queueLength), stop: make(chan struct{}), folders: newFolders()}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", o.Path, err), db.Close())
	}
	interval := o.ReapInterval
	if interval == 0 {
		interval = time.Second
	}
	s.done.Add(2)
	go s.write()
	go s.reap(interval)
	return s, nil
}

// Close stops the writer after the requests it already took and closes the file.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		close(s.stop)
		s.done.Wait()
		err = s.db.Close()
	})
	return err
}

// Stats returns a copy of the counters.
func (s *Store) Stats() Stats {
	return Stats{Groups: atomic.LoadUint64(&s.stats.Groups), Ops: atomic.LoadUint64(&s.stats.Ops)}
}

// Healthy returns why the store can no longer write, or nil.
func (s *Store) Healthy() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// load reads the catalog.
func (s *Store) load() error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, b := range [][]byte{bucketDatabases, bucketContainers, bucketOffers, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		switch got := meta.Get(keyFormat); {
		case got == nil:
			return meta.Put(keyFormat, formatVersion)
		case !bytes.Equal(got, formatVersion):
			return fmt.Errorf("format %q is not %q", got, formatVersion)
		}
		return nil
	})
	if err != nil {
		return err
	}
	cat := &catalog{databases: map[string]*Database{}, offers: map[string]*Offer{}}
	byRID := map[string]*Database{}
	err = s.db.View(func(tx *bolt.Tx) error {
		err := tx.Bucket(bucketDatabases).ForEach(func(k, v []byte) error {
			d := &Database{containers: map[string]*Container{}}
			if err := json.Unmarshal(v, d); err != nil {
				return fmt.Errorf("database %q: %w", k, err)
			}
			cat.databases[d.Name] = d
			byRID[string(d.RID)] = d
			s.lastTS = max(s.lastTS, d.TS)
			return nil
		})
		if err != nil {
			return err
		}
		err = tx.Bucket(bucketContainers).ForEach(func(k, v []byte) error {
			c := &Container{}
			if err := json.Unmarshal(v, c); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			if err := c.complete(); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			c.Database = byRID[string(c.RID[:4])]
			if c.Database == nil {
				return fmt.Errorf("container %x has no database", k)
			}
			c.Database.containers[c.Name] = c
			if err := s.folders.fill(tx, c); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			s.lastTS = max(s.lastTS, c.TS, lastItemTS(tx, c))
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket(bucketOffers).ForEach(func(k, v []byte) error {
			o := &Offer{}
			if err := json.Unmarshal(v, o); err != nil {
				return fmt.Errorf("offer %q: %w", k, err)
			}
			cat.offers[o.ResourceID] = o
			return nil
		})
	})
	s.catalog.Store(cat)
	return err
}

// submit hands a request to the writer and waits until it is durable or refused.
func (s *Store) submit(o *op) error {
	o.finished = make(chan struct{})
	select {
	case <-s.stop:
		return ErrClosed
	case <-o.ctx.Done():
		return o.ctx.Err()
	case s.ops <- o:
	}
	select {
	case <-o.finished:
		return o.err
	case <-s.stop:
	}
	// The writer finishes what it took; what it did not take is refused.
	s.done.Wait()
	select {
	case <-o.finished:
		return o.err
	default:
		return ErrClosed
	}
}

// write is the writer goroutine.
func (s *Store) write() {
	defer s.done.Done()
	var held *op // an exclusive request that ended the previous group
	group := make([]*op, 0, maxGroup)
	for {
		group = group[:0]
		first := held
		held = nil
		if first == nil {
			select {
			case <-s.stop:
				return
			case first = <-s.ops:
			}
		}
		group = append(group, first)
		for !first.exclusive && held == nil && len(group) < maxGroup {
			select {
			case next := <-s.ops:
				if next.exclusive {
					held = next
				} else {
					group = append(group, next)
				}
				continue
			default:
			}
			break
		}
		s.commit(group)
	}
}

// commit runs a group in one transaction. An unexpected failure of one request takes the transaction with it, so
// each is then tried alone.
func (s *Store) commit(group []*op) {
	err := s.tryCommit(group)
	if err != nil && len(group) > 1 {
		for _, o := range group {
			s.commit([]*op{o})
		}
		return
	}
	atomic.AddUint64(&s.stats.Groups, 1)
	atomic.AddUint64(&s.stats.Ops, uint64(len(group)))
	for _, o := range group {
		if err != nil {
			o.err = err
		} else if o.err == nil && o.after != nil {
			o.after()
		}
		close(o.finished)
	}
}

func (s *Store) tryCommit(group []*op) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	dirty := false
	for _, o := range group {
		if o.err = o.ctx.Err(); o.err != nil {
			continue
		}
		var wrote bool
		wrote, o.err = runSafely(o, tx)
		dirty = dirty || wrote
		var refusal *Error
		if o.err != nil && !errors.As(o.err, &refusal) {
			return errors.Join(o.err, tx.Rollback())
		}
	}
	if !dirty {
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		err = fmt.Errorf("commit: %w", err)
		s.broken.Store(&err)
		s.log.Error("the store cannot commit", "error", err)
		return err
	}
	s.broken.Store(nil)
	return nil
}

// runSafely turns a panic into an error, so that a fault in one request cannot end the writer with requests of
// others half acknowledged.
func runSafely(o *op, tx *bolt.Tx) (wrote bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", r, debug.Stack())
		}
	}()
	return o.run(tx)
}

// timestamp is the time of a write in seconds, never before an earlier write's. Writer only.
func (s *Store) timestamp() int64 {
	s.lastTS = max(s.lastTS, s.now().Unix())
	return s.lastTS
}

// changeCatalog commits one catalog change: change gets a copy of the catalog to edit.
func (s *Store) changeCatalog(ctx context.Context, change func(tx *bolt.Tx, next *catalog) error) error {
	var next *catalog
	o := &op{ctx: ctx, exclusive: true}
	o.run = func(tx *bolt.Tx) (bool, error) {
		old := s.catalog.Load()
		next = &catalog{databases: maps.Clone(old.databases), offers: maps.Clone(old.offers)}
		err := change(tx, next)
		return err == nil, err
	}
	o.after = func() { s.catalog.Store(next) }
	return s.submit(o)
}
