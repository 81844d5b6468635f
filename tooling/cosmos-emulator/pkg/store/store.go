// Package store stores databases, containers and items durably in one bbolt file and returns their changes in commit
// order.
//
// One goroutine executes all writes. It collects the waiting requests, runs them one after the other in one transaction,
// and acknowledges them after the fsync of that transaction. This gives group commit and serializable batches. Every
// write gets its log sequence number (LSN) in commit order, so that the change feed never inserts a change before one
// that was already read.
//
// Reads are snapshots of bbolt, so they never return a write that a crash could undo. The store must never acknowledge a
// write before the fsync.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Options configure a store.
type Options struct {
	// Path is the path of the file. It is created if it does not exist, and locked while it is open.
	Path string
	// Now is the clock for timestamps and expiry; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
	// LaggingReplica keeps the state before the last commit, for Lagging.
	LaggingReplica bool
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	// Reader reads from the primary replica.
	Reader
	lagging lagging
	db      *bolt.DB
	log     *slog.Logger
	catalog atomic.Pointer[catalog]
	lastTS  int64 // used by the writer only: timestamps never decrease
	folders *folderIndex

	ops       chan *writeRequest
	stop      chan struct{}
	closeOnce sync.Once
	done      sync.WaitGroup
	stats     Stats
}

// Stats counts the work of the writer.
type Stats struct {
	Commits, Writes uint64
}

const (
	// maxGroup bounds the requests that share one fsync.
	maxGroup = 256
	// queueLength bounds the requests that wait for the writer. Callers block if the queue is full.
	queueLength = 1024
	// initialMmap reserves address space, not memory. It avoids that readers wait for a remap while the file grows.
	initialMmap = 1 << 30
)

var (
	bucketDatabases  = []byte("databases")
	bucketContainers = []byte("containers")
	bucketMeta       = []byte("meta")
	keyFormat        = []byte("format")
	keyProbe         = []byte("probe")
	formatVersion    = []byte("hcpmesh-cosmos-1")

	// ErrClosed is returned for writes after Close.
	ErrClosed = errors.New("the store is closed")
)

// writeRequest is a request to the writer. run may be called repeatedly, each time in a transaction without any of its
// earlier writes. It either returns an *Error and has written nothing, or has made all of its writes. wrote reports
// whether there were any: a group without writes needs no fsync.
type writeRequest struct {
	ctx       context.Context
	exclusive bool // changes the catalog: needs a transaction without other requests
	run       func(tx *bolt.Tx) (wrote bool, err error)
	onCommit  func() // called by the writer after the commit
	err       error
	finished  chan struct{}
}

// Open opens or creates a store, and removes expired items from it.
func Open(o Options) (*Store, error) {
	db, err := bolt.Open(o.Path, 0o600, &bolt.Options{
		Timeout:         time.Second,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: initialMmap,
	})
	if err != nil {
		return nil, fmt.Errorf("opening %s, which another emulator may have locked: %w", o.Path, err)
	}
	s := &Store{Reader: Reader{view: db.View, now: o.Now}, lagging: lagging{enabled: o.LaggingReplica}, db: db, log: o.Logger, ops: make(chan *writeRequest, queueLength), stop: make(chan struct{}), folders: newFolderIndex()}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("loading %s: %w", o.Path, err), db.Close())
	}
	s.done.Add(1)
	go s.runWriter()
	return s, nil
}

// Close stops the writer after its current requests and closes the file.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.stop)
		s.done.Wait()
		err = errors.Join(s.lagging.replace(nil), s.db.Close())
	})
	return err
}

// Stats returns a copy of the counters.
func (s *Store) Stats() Stats {
	return Stats{Commits: atomic.LoadUint64(&s.stats.Commits), Writes: atomic.LoadUint64(&s.stats.Writes)}
}

// Healthy returns nil if the store commits writes, or why not. It checks the free space, because a small write can reuse pages of the
// file on a full disk, and commits a write through the writer. It can take longer than the context allows, while a commit hangs.
func (s *Store) Healthy(ctx context.Context) error {
	if err := disk.CheckSpace(filepath.Dir(s.db.Path())); err != nil {
		return err
	}
	err := s.submitAndWait(&writeRequest{ctx: ctx, run: func(tx *bolt.Tx) (bool, error) {
		return true, tx.Bucket(bucketMeta).Put(keyProbe, []byte(s.now().UTC().Format(time.RFC3339Nano)))
	}})
	if disk.IsFull(err) {
		return fmt.Errorf("%w: %w", disk.ErrFull, err)
	}
	return err
}

// load reads the catalog from the file.
func (s *Store) load() error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for _, b := range [][]byte{bucketDatabases, bucketContainers, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		switch got := meta.Get(keyFormat); {
		case got == nil:
			return meta.Put(keyFormat, formatVersion)
		case !bytes.Equal(got, formatVersion):
			return fmt.Errorf("file format %q, want %q", got, formatVersion)
		}
		return nil
	})
	if err != nil {
		return err
	}
	cat := catalog{}
	byRID := map[string]*Database{}
	err = s.db.Update(func(tx *bolt.Tx) error {
		err := tx.Bucket(bucketDatabases).ForEach(func(k, v []byte) error {
			d := &Database{containers: map[string]*Container{}}
			if err := json.Unmarshal(v, d); err != nil {
				return fmt.Errorf("database %q: %w", k, err)
			}
			cat[d.Name] = d
			byRID[string(d.RID)] = d
			s.lastTS = max(s.lastTS, d.TS)
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket(bucketContainers).ForEach(func(k, v []byte) error {
			c := &Container{}
			if err := json.Unmarshal(v, c); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			if err := c.parseProperties(); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			c.Database = byRID[string(c.RID[:4])]
			if c.Database == nil {
				return fmt.Errorf("container %x has no database", k)
			}
			c.Database.containers[c.Name] = c
			if err := errors.Join(s.removeExpired(tx, c), s.folders.load(tx, c)); err != nil {
				return fmt.Errorf("container %x: %w", k, err)
			}
			s.lastTS = max(s.lastTS, c.TS, lastItemTS(tx, c))
			return nil
		})
	})
	s.catalog.Store(&cat)
	return err
}

// submitAndWait sends a request to the writer and waits until it is durable or rejected.
func (s *Store) submitAndWait(o *writeRequest) error {
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
	// The writer completes the requests that it received; the others are rejected.
	s.done.Wait()
	select {
	case <-o.finished:
		return o.err
	default:
		return ErrClosed
	}
}

// runWriter is the writer goroutine.
func (s *Store) runWriter() {
	defer s.done.Done()
	var next *writeRequest // an exclusive request that ended the previous group
	group := make([]*writeRequest, 0, maxGroup)
	for {
		group = group[:0]
		first := next
		next = nil
		if first == nil {
			select {
			case <-s.stop:
				return
			case first = <-s.ops:
			}
		}
		group = append(group, first)
		for !first.exclusive && next == nil && len(group) < maxGroup {
			select {
			case request := <-s.ops:
				if request.exclusive {
					next = request
				} else {
					group = append(group, request)
				}
				continue
			default:
			}
			break
		}
		s.commit(group)
	}
}

// commit runs a group in one transaction. If one request fails unexpectedly, the transaction is rolled back and each
// request is run in its own transaction.
func (s *Store) commit(group []*writeRequest) {
	err := s.tryCommit(group)
	if err != nil && len(group) > 1 {
		for _, o := range group {
			s.commit([]*writeRequest{o})
		}
		return
	}
	atomic.AddUint64(&s.stats.Commits, 1)
	atomic.AddUint64(&s.stats.Writes, uint64(len(group)))
	for _, o := range group {
		if err != nil {
			o.err = err
		} else if o.err == nil && o.onCommit != nil {
			o.onCommit()
		}
		close(o.finished)
	}
}

// tryCommit runs a group in one transaction.
func (s *Store) tryCommit(group []*writeRequest) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	dirty := false
	for _, o := range group {
		if o.err = o.ctx.Err(); o.err != nil {
			continue
		}
		var wrote bool
		wrote, o.err = runRecovered(o, tx)
		dirty = dirty || wrote
		var rejected *Error
		if o.err != nil && !errors.As(o.err, &rejected) {
			return errors.Join(o.err, tx.Rollback())
		}
	}
	if !dirty {
		return tx.Rollback()
	}
	err = s.lagging.keep(s.db, tx, group)
	if err == nil {
		err = tx.Commit()
	} else {
		err = errors.Join(err, tx.Rollback())
	}
	if err != nil {
		err = fmt.Errorf("committing: %w", err)
		s.log.Error("committing to the store failed", logkey.Error, err)
		return err
	}
	return nil
}

// runRecovered converts a panic to an error, so that a fault in one request does not terminate the writer during a group.
func runRecovered(o *writeRequest, tx *bolt.Tx) (wrote bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", r, debug.Stack())
		}
	}()
	return o.run(tx)
}

// timestamp returns the time of a write in seconds. It never decreases. Only the writer may call it.
func (s *Store) timestamp() int64 {
	s.lastTS = max(s.lastTS, s.now().Unix())
	return s.lastTS
}

// changeCatalog commits a change of the catalog. change edits a copy of the catalog.
func (s *Store) changeCatalog(ctx context.Context, change func(tx *bolt.Tx, next catalog) error) error {
	var next catalog
	o := &writeRequest{ctx: ctx, exclusive: true}
	o.run = func(tx *bolt.Tx) (bool, error) {
		next = maps.Clone(*s.catalog.Load())
		err := change(tx, next)
		return err == nil, err
	}
	o.onCommit = func() { s.catalog.Store(&next) }
	return s.submitAndWait(o)
}
