package store

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// ItemAddress identifies an item in a container.
type ItemAddress struct {
	Key partition.Key
	ID  string
}

// Lookup is like Scan for the items at the given addresses only, with the same order and positions.
func (s *Reader) Lookup(c *Container, scope Scope, points []ItemAddress, after Position, visit func(at Position, item Item) (bool, error)) (lsn uint64, err error) {
	type found struct {
		at Position
		r  record
	}
	err = s.view(func(tx *bolt.Tx) error {
		docs := tx.Bucket(c.bucket('d'))
		if docs == nil {
			return &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}
		}
		lsn = docs.Sequence()
		now := s.now().Unix()
		prefix := scope.Key.Encode(nil)
		var all []found
		for _, p := range points {
			key := recordKey(p.Key, p.ID)
			if !bytes.HasPrefix(key, prefix) || !scope.Range.Contains(c.PK.EPK(p.Key)) {
				continue
			}
			raw := docs.Get(key)
			if raw == nil {
				continue
			}
			r, err := decodeRecord(raw)
			if err != nil {
				return err
			}
			if r.expired(c, now) {
				continue
			}
			at := Position(u64(r.number))
			if scope.Key != nil {
				at = partitionOrderKey(p.Key, r.number)
			}
			if after == nil || bytes.Compare(at, after) > 0 {
				all = append(all, found{at, r})
			}
		}
		slices.SortFunc(all, func(a, b found) int { return bytes.Compare(a.at, b.at) })
		all = slices.CompactFunc(all, func(a, b found) bool { return bytes.Equal(a.at, b.at) })
		for _, f := range all {
			more, err := visit(f.at, Item{Body: f.r.body, ETag: f.r.etag(c), LSN: f.r.lsn, TS: f.r.ts})
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	return lsn, err
}
