package store

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// folderIndex records the folders of items' paths. For each top-level property that is a string like /a/b/c it records /,
// /a/ and /a/b/. A filter for a prefix that no item ever had is answered without reading items. The index is in memory
// only: it is loaded when the store is opened and only grows, because a false positive costs only a search.
type folderIndex struct {
	seed maphash.Seed

	mu   sync.RWMutex
	seen map[uint64]struct{}
}

func newFolderIndex() *folderIndex {
	return &folderIndex{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// hash returns the key of a folder in a container.
func (f *folderIndex) hash(c *Container, folder string) uint64 {
	return maphash.String(f.seed, c.key+folder)
}

// add records the folders of an item. It must be called before the item is visible to readers.
func (f *folderIndex) add(c *Container, item document.Value) {
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
				// Its parents were recorded with it.
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

// load records the folders of all stored items of a container.
func (f *folderIndex) load(tx *bolt.Tx, c *Container) error {
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
			return fmt.Errorf("parsing a stored item: %w", err)
		}
		f.add(c, item)
		return nil
	})
}

// MayHaveFolder reports whether an item of the container may have a top-level string property with the prefix folder,
// which must begin and end with a slash. It returns false only if no visible item has one.
func (s *Store) MayHaveFolder(c *Container, folder string) bool {
	s.folders.mu.RLock()
	defer s.folders.mu.RUnlock()
	_, ok := s.folders.seen[s.folders.hash(c, folder)]
	return ok
}
