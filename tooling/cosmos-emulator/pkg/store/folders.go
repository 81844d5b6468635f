package store

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// folders remembers beneath which folders the items' paths are: of every property of an item that is a string like
// /a/b/c, that there is something beneath / and /a/ and /a/b/. A filter that asks for what begins with a folder beneath
// which nothing was ever written is answered without looking at any item. It is memory only, filled when the store is
// opened, before anybody can see what it holds, and only grows: what is gone is looked for in vain.
type folders struct {
	seed maphash.Seed

	mu   sync.RWMutex
	seen map[uint64]struct{}
}

func newFolders() *folders {
	return &folders{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

func (f *folders) hash(c *Container, folder string) uint64 {
	return maphash.String(f.seed, c.key+folder)
}

// note takes the folders of an item that is about to be written.
func (f *folders) note(c *Container, item document.Value) {
	var missing []uint64
	f.mu.RLock()
	for _, member := range item.Obj {
		text := member.Value.Str
		if member.Value.Kind != document.String || !strings.HasPrefix(text, "/") {
			continue
		}
		for i := len(text); i > 0; {
			if i = strings.LastIndexByte(text[:i], '/'); i < 0 {
				break
			}
			h := f.hash(c, text[:i+1])
			if _, ok := f.seen[h]; ok {
				// What is above it has been noted with it.
				break
			}
			missing = append(missing, h)
		}
	}
	f.mu.RUnlock()
	if len(missing) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range missing {
		f.seen[h] = struct{}{}
	}
}

// fill takes the folders of everything that is stored.
func (f *folders) fill(tx *bolt.Tx, c *Container) error {
	docs := tx.Bucket(c.bucket('d'))
	if docs == nil {
		return nil
	}
	return docs.ForEach(func(_, raw []byte) error {
		r, err := decodeRecord(raw)
		if err != nil {
			return err
		}
		item, err := document.Parse(r.body)
		if err != nil {
			return fmt.Errorf("an item that is stored: %w", err)
		}
		f.note(c, item)
		return nil
	})
}

// MayBeBeneath reports whether an item of the container may have a property, not within another, that is a string which
// begins with folder: a string that begins and ends with a slash. It is false only if none that anybody can see has.
func (s *Store) MayBeBeneath(c *Container, folder string) bool {
	s.folders.mu.RLock()
	defer s.folders.mu.RUnlock()
	_, ok := s.folders.seen[s.folders.hash(c, folder)]
	return ok
}
