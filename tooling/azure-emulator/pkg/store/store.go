// Package store stores the emulator's documents in one bbolt file: JSON values in named buckets, ordered by key.
//
// Each change is one transaction that is durable before it is acknowledged, so that a killed emulator loses no
// acknowledged change. Reads see only durable changes. The users of the package define the keys.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Store is an open file. It is safe for concurrent use.
type Store struct {
	db *bolt.DB
}

// Open opens or creates the file, which is locked while it is open.
func Open(path string) (*Store, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("opening %s, which another emulator may have locked: %w", path, err)
	}
	return &Store{db: db}, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Healthy returns nil if the store commits writes, or why not. It also checks the free space, because a small write can reuse pages
// of the file on a full disk. It can take longer than a context allows, while a commit hangs.
func (s *Store) Healthy(context.Context) error {
	if err := disk.CheckSpace(filepath.Dir(s.db.Path())); err != nil {
		return err
	}
	err := s.Update(func(tx *Tx) error { return tx.Put("health", "probe", time.Now().UTC()) })
	if disk.IsFull(err) {
		return fmt.Errorf("%w: %w", disk.ErrFull, err)
	}
	return err
}

// View calls read with a snapshot.
func (s *Store) View(read func(tx *Tx) error) error {
	return s.db.View(func(tx *bolt.Tx) error { return read(&Tx{tx: tx}) })
}

// Update calls change in a transaction. The transaction is durable when Update returns nil, and is rolled back if change
// returns an error.
func (s *Store) Update(change func(tx *Tx) error) error {
	return s.db.Update(func(tx *bolt.Tx) error { return change(&Tx{tx: tx}) })
}

// Tx is a transaction.
type Tx struct {
	tx *bolt.Tx
}

// Get decodes a value into into. It returns false if the key does not exist.
func (t *Tx) Get(bucket, key string, into any) (bool, error) {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return false, nil
	}
	value := b.Get([]byte(key))
	if value == nil {
		return false, nil
	}
	if err := json.Unmarshal(value, into); err != nil {
		return false, fmt.Errorf("reading %s %s: %w", bucket, key, err)
	}
	return true, nil
}

// Put writes a value.
func (t *Tx) Put(bucket, key string, value any) error {
	b, err := t.tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", bucket, key, err)
	}
	return b.Put([]byte(key), data)
}

// Delete deletes a value. It returns nil if the key does not exist.
func (t *Tx) Delete(bucket, key string) error {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.Delete([]byte(key))
}

// ErrStop, returned by a visitor, ends a Scan without an error.
var ErrStop = errors.New("stop")

// Scan calls visit for each key with a prefix, in order. decode decodes the value. visit must not change the bucket.
func (t *Tx) Scan(bucket, prefix string, visit func(key string, decode func(into any) error) error) error {
	b := t.tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	cursor := b.Cursor()
	for key, value := cursor.Seek([]byte(prefix)); key != nil && bytes.HasPrefix(key, []byte(prefix)); key, value = cursor.Next() {
		err := visit(string(key), func(into any) error {
			if err := json.Unmarshal(value, into); err != nil {
				return fmt.Errorf("reading %s %s: %w", bucket, key, err)
			}
			return nil
		})
		if errors.Is(err, ErrStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// All returns the values with a prefix, in the order of their keys.
func All[T any](t *Tx, bucket, prefix string) ([]*T, error) {
	var all []*T
	err := t.Scan(bucket, prefix, func(_ string, decode func(into any) error) error {
		value := new(T)
		all = append(all, value)
		return decode(value)
	})
	return all, err
}

// Writable reports whether the transaction may write.
func (t *Tx) Writable() bool { return t.tx.Writable() }
