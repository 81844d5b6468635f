package store

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// Scope is the part of a container that a read looks at.
type Scope struct {
	// Key restricts to a logical partition, or to all with this prefix of a hierarchical key; nil does not.
	Key partition.Key
	// Range restricts to an interval of the EPK space; the zero Range does not.
	Range partition.Range
}

// Get reads one item.
func (s *Store) Get(c *Container, pk partition.Key, id string) (item Item, lsn uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		raw := docs.Get(recordKey(pk, id))
		if raw == nil {
			return Refuse(NotFound, "%s", msgNotFound)
		}
		r, err := decodeRecord(raw)
		if err != nil {
			return err
		}
		if r.expired(c, s.now().Unix()) {
			return Refuse(NotFound, "%s", msgNotFound)
		}
		item = r.item(c)
		return nil
	})
	return item, lsn, err
}

// LSN is the container's last log sequence number.
func (s *Store) LSN(c *Container) (lsn uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		return nil
	})
	return lsn, err
}

// Position is a place in the order of a scan: that of the last item seen. It stays valid for ever, whatever is
// written meanwhile, because an item keeps its place as long as it lives.
type Position []byte

// Scan calls visit with the items of the scope after a position, in the order in which they were created, from one
// snapshot, until visit returns false. The body is only valid during the call.
func (s *Store) Scan(c *Container, scope Scope, after Position, visit func(at Position, item Item) (bool, error)) (lsn uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		now := s.now().Unix()
		kind, prefix := byte('o'), []byte(nil)
		if scope.Key != nil {
			kind, prefix = 'p', scope.Key.Encode(nil)
		}
		cursor := tx.Bucket(c.bucket(kind)).Cursor()
		var k, ref []byte
		if after == nil {
			k, ref = cursor.Seek(prefix)
		} else if k, ref = cursor.Seek(after); bytes.Equal(k, after) {
			k, ref = cursor.Next()
		}
		for ; k != nil && bytes.HasPrefix(k, prefix); k, ref = cursor.Next() {
			epk, key, err := decodeReference(ref)
			if err != nil {
				return err
			}
			if !scope.Range.Contains(epk) {
				continue
			}
			r, err := decodeRecord(docs.Get(key))
			if err != nil {
				return err
			}
			if r.expired(c, now) {
				continue
			}
			more, err := visit(Position(k), Item{Body: r.body, ETag: r.etag(c), LSN: r.lsn, TS: r.ts})
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	return lsn, err
}

// Changes is a page of the change feed. Reading on after LSN misses nothing and repeats nothing.
type Changes struct {
	Items []Item
	LSN   uint64
}

// ChangesAfter reads the items of a scope whose last change came after an LSN (and not before since, in seconds),
// in commit order: at most about maxItems and maxBytes, but never part of a transaction.
func (s *Store) ChangesAfter(c *Container, scope Scope, after uint64, since int64, maxItems, maxBytes int) (Changes, error) {
	out := Changes{LSN: after}
	err := s.db.View(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		current := docs.Sequence()
		if after > current {
			return Refuse(BadRequest, "The change feed continuation is ahead of the container: it was issued for another one.")
		}
		now := s.now().Unix()
		var prefix []byte
		if scope.Key != nil {
			prefix = scope.Key.Encode(nil)
		}
		size := 0
		cursor := tx.Bucket(c.bucket('c')).Cursor()
		for k, ref := cursor.Seek(changeKey(after+1, 0)); k != nil; k, ref = cursor.Next() {
			lsn := binary.BigEndian.Uint64(k)
			if lsn != out.LSN && (len(out.Items) >= maxItems || size >= maxBytes) {
				return nil
			}
			out.LSN = lsn
			epk, key, err := decodeReference(ref)
			if err != nil {
				return err
			}
			if !scope.Range.Contains(epk) || !bytes.HasPrefix(key, prefix) {
				continue
			}
			r, err := decodeRecord(docs.Get(key))
			if err != nil {
				return err
			}
			if r.ts < since || r.expired(c, now) {
				continue
			}
			out.Items = append(out.Items, r.item(c))
			size += len(r.body)
		}
		out.LSN = current
		return nil
	})
	return out, err
}
