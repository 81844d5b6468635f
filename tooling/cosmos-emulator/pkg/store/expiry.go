package store

import (
	"bytes"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// removeExpired removes the expired items of a container. Expired items are never returned, so only the size of the file depends on it.
func (s *Store) removeExpired(tx *bolt.Tx, c *Container) error {
	if c.DefaultTTL == nil {
		return nil
	}
	docs, now := tx.Bucket(c.bucket('d')), s.now().Unix()
	var expired [][]byte // bbolt's ForEach permits no changes
	err := docs.ForEach(func(key, raw []byte) error {
		r, err := decodeRecord(raw)
		if err == nil && r.expired(c, now) {
			expired = append(expired, bytes.Clone(key))
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, key := range expired {
		r, err := decodeRecord(docs.Get(key))
		if err != nil {
			return err
		}
		item, err := document.Parse(r.body)
		if err != nil {
			return fmt.Errorf("parsing a stored item: %w", err)
		}
		pk, err := c.PK.Extract(item)
		if err != nil {
			return err
		}
		if err := removeIndexes(tx, c, pk, &r, false); err != nil {
			return err
		}
		if err := docs.Delete(key); err != nil {
			return err
		}
	}
	return nil
}
