package store

import (
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Reader reads items from one replica.
type Reader struct {
	view func(read func(tx *bolt.Tx) error) error
	now  func() time.Time
}

// Lagging returns a reader of a replica that has not executed the last commit. It is the primary replica without Options.LaggingReplica,
// after a change of databases or containers, and if the file has more than 512 MiB.
func (s *Store) Lagging() *Reader {
	return &Reader{now: s.now, view: func(read func(tx *bolt.Tx) error) error {
		s.lagging.mu.Lock()
		defer s.lagging.mu.Unlock()
		if s.lagging.tx == nil {
			return s.db.View(read)
		}
		return read(s.lagging.tx)
	}}
}

// lagging is the snapshot of the lagging replica. bbolt's transactions are not safe for concurrent use.
type lagging struct {
	enabled bool

	mu sync.Mutex
	tx *bolt.Tx // nil if the replica does not lag
}

// maxLaggingBytes is the size up to which a file has a lagging replica. While a snapshot exists, bbolt cannot enlarge the address space
// of the file. The rest of initialMmap is enough for one group of writes.
const maxLaggingBytes = initialMmap / 2

// keep makes the state before a commit that of the replica. Only the writer may call it.
func (l *lagging) keep(db *bolt.DB, commit *bolt.Tx, group []*writeRequest) error {
	if !l.enabled {
		return nil
	}
	if group[0].exclusive || commit.Size() > maxLaggingBytes {
		return l.replace(nil)
	}
	before, err := db.Begin(false)
	if err != nil {
		return err
	}
	return l.replace(before)
}

// replace ends the snapshot and starts the next one.
func (l *lagging) replace(next *bolt.Tx) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.tx
	if l.tx = next; ended == nil {
		return nil
	}
	return ended.Rollback()
}
