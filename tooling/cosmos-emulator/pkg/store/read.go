package store

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// Scope is the part of a container that a read covers.
type Scope struct {
	// Key restricts the scope to a logical partition; the empty key means no restriction.
	Key partition.Key
	// Range restricts the scope to an interval of the EPK space; the zero Range means no restriction.
	Range partition.Range
}

// Get returns an item and the LSN of the snapshot.
func (s *Reader) Get(c *Container, pk partition.Key, id string) (item Item, lsn uint64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		raw := docs.Get(recordKey(pk, id))
		if raw == nil {
			return NewError(NotFound, "%s", msgNotFound)
		}
		r, err := decodeRecord(raw)
		if err != nil {
			return err
		}
		if r.expired(c, s.now().Unix()) {
			return NewError(NotFound, "%s", msgNotFound)
		}
		item = r.item(c)
		return nil
	})
	return item, lsn, err
}

// LSN returns the last log sequence number of a container.
func (s *Reader) LSN(c *Container) (lsn uint64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		return nil
	})
	return lsn, err
}

// Position is the position of an item in the order of a scan. It stays valid regardless of later writes, because an item
// keeps its position until it is deleted.
type Position []byte

// Scan calls visit for the items of a scope after a position, in the order of their creation, from one snapshot, until
// visit returns false. The body is valid only during the call.
func (s *Reader) Scan(c *Container, scope Scope, after Position, visit func(at Position, item Item) (bool, error)) (lsn uint64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		now := s.now().Unix()
		kind, prefix := byte('o'), []byte(nil)
		if scope.Key != "" {
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

// ChangePage is a page of the change feed. The next page begins after LSN, without gaps or duplicates.
type ChangePage struct {
	Items []Item
	LSN   uint64
}

// ChangesAfter returns the items of a scope that changed after an LSN, and not before since (in seconds), in commit
// order. A page has about maxItems items and maxBytes bytes, and never a part of a transaction.
func (s *Reader) ChangesAfter(c *Container, scope Scope, after uint64, since int64, maxItems, maxBytes int) (ChangePage, error) {
	out := ChangePage{LSN: after}
	err := s.view(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		current := docs.Sequence()
		if after > current {
			return NewError(BadRequest, "The change feed continuation was issued for another container: it is ahead of this one.")
		}
		now := s.now().Unix()
		var prefix []byte
		if scope.Key != "" {
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
