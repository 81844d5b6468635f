package store

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// expiryBatch bounds the expired items that one transaction removes.
const expiryBatch = 200

// removeExpiredPeriodically is the goroutine that removes expired items.
func (s *Store) removeExpiredPeriodically(interval time.Duration) {
	defer s.done.Done()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for _, d := range *s.catalog.Load() {
			for _, c := range d.containers {
				if c.DefaultTTL == nil {
					continue
				}
				if err := s.removeAllExpired(ctx, c); err != nil && !errors.Is(err, ErrClosed) {
					s.log.Error("removing expired items failed", logkey.Container, c.Name, logkey.Error, err)
				}
			}
		}
	}
}

// removeAllExpired removes all expired items of a container.
func (s *Store) removeAllExpired(ctx context.Context, c *Container) error {
	for {
		due, err := s.hasExpired(c)
		if err != nil || !due {
			return err
		}
		if err := s.submitInternal(&writeRequest{ctx: ctx, run: func(tx *bolt.Tx) (bool, error) { return s.removeExpired(tx, c) }}); err != nil {
			return err
		}
	}
}

// submitInternal is submitAndWait for the store's own goroutines. It does not wait for the writer after Close was called,
// because Close waits for these goroutines.
func (s *Store) submitInternal(o *writeRequest) error {
	o.finished = make(chan struct{})
	select {
	case <-s.stop:
		return ErrClosed
	case s.ops <- o:
	}
	select {
	case <-s.stop:
		return ErrClosed
	case <-o.finished:
		return o.err
	}
}

// hasExpired reports whether a container has expired items.
func (s *Store) hasExpired(c *Container) (bool, error) {
	var due bool
	err := s.db.View(func(tx *bolt.Tx) error {
		index := tx.Bucket(c.bucket('t'))
		if index == nil {
			return nil
		}
		k, _ := index.Cursor().First()
		due = k != nil && int64(binary.BigEndian.Uint64(k)) <= s.now().Unix()
		return nil
	})
	return due, err
}

// removeExpired removes up to expiryBatch expired items of a container.
func (s *Store) removeExpired(tx *bolt.Tx, c *Container) (wrote bool, err error) {
	d := (*s.catalog.Load())[c.Database.Name]
	if d == nil || d.containers[c.Name] == nil || d.containers[c.Name].key != c.key {
		return false, nil
	}
	c = d.containers[c.Name]
	now := s.timestamp()
	type entry struct{ at, key []byte }
	var entries []entry
	cursor := tx.Bucket(c.bucket('t')).Cursor()
	for k, v := cursor.First(); k != nil && len(entries) < expiryBatch; k, v = cursor.Next() {
		if int64(binary.BigEndian.Uint64(k)) > now {
			break
		}
		entries = append(entries, entry{append([]byte(nil), k...), append([]byte(nil), v...)})
	}
	docs := tx.Bucket(c.bucket('d'))
	for _, v := range entries {
		if err := tx.Bucket(c.bucket('t')).Delete(v.at); err != nil {
			return false, err
		}
		raw := docs.Get(v.key)
		if raw == nil {
			continue
		}
		r, err := decodeRecord(raw)
		if err != nil {
			return false, err
		}
		if !r.expired(c, now) {
			continue
		}
		doc, err := document.Parse(r.body)
		if err != nil {
			return false, err
		}
		pk, err := c.PK.Extract(doc)
		if err != nil {
			return false, err
		}
		if err := removeIndexes(tx, c, pk, v.key, &r, false); err != nil {
			return false, err
		}
		if err := docs.Delete(v.key); err != nil {
			return false, err
		}
	}
	if len(entries) == 0 {
		return false, nil
	}
	_, err = docs.NextSequence()
	return true, err
}
