package database

import (
	"fmt"
	"strings"
	"time"
)

// MaxBatchDocuments is how many documents a batch may write. MaxBatchBytes limits their encoded size.
const (
	MaxBatchDocuments = 100
	MaxBatchBytes     = 2 << 20
)

// Batch collects writes within one subscription that succeed or fail together. Create, Replace and Remove add writes;
// Commit sends them. A batch is used once, by one goroutine.
type Batch struct {
	db           *DB
	subscription string
	writes       []*write
	err          error
}

type verb int

const (
	create verb = iota
	replace
)

// write is one document of a batch.
type write struct {
	verb verb
	kind Kind
	key  Key
	id   string
	// etag is the condition of a replace.
	etag string
	// encode returns the document with token added to its commit tokens.
	encode func(token string) ([]byte, error)
	// committed updates the item after the commit.
	committed func(etag string, document []byte)
}

// NewBatch returns an empty batch for a subscription's documents.
func (db *DB) NewBatch(subscriptionID string) *Batch {
	return &Batch{db: db, subscription: strings.ToLower(subscriptionID)}
}

// Len returns the number of documents that the batch writes.
func (b *Batch) Len() int { return len(b.writes) }

// Create adds a new document. The commit fails if the document exists; a tombstone is replaced. The returned item has
// its ETag after the commit.
func Create[T any](b *Batch, c *Collection[T], key Key, value T) *Item[T] {
	key.SubscriptionID = strings.ToLower(key.SubscriptionID)
	item := &Item[T]{Key: key, Value: value, collection: c}
	b.add(newWrite(create, item))
	return item
}

// Replace adds the item's Value. The commit fails if the document was written since it was read. Replacing an unchanged
// Value makes the rest of the batch depend on the document.
func Replace[T any](b *Batch, item *Item[T]) {
	if item.collection == nil || item.ETag == "" || item.Removed != nil {
		b.fail(fmt.Errorf("replacing the document %s, which was not read or is removed", item.Key.lower()))
		return
	}
	b.add(newWrite(replace, item))
}

// Remove adds the removal of the document. The commit fails if the document was written since it was read. The document
// becomes a tombstone, which Cosmos DB removes after TombstoneTTL.
func Remove[T any](b *Batch, item *Item[T]) {
	if item.collection == nil || item.ETag == "" || item.Removed != nil {
		b.fail(fmt.Errorf("removing the document %s, which was not read or is removed", item.Key.lower()))
		return
	}
	tombstone := *item
	now := time.Now().UTC().Truncate(time.Second)
	tombstone.Removed = &now
	w := newWrite(replace, &tombstone)
	committed := w.committed
	w.committed = func(etag string, document []byte) {
		committed(etag, document)
		*item = tombstone
	}
	b.add(w)
}

func newWrite[T any](verb verb, item *Item[T]) *write {
	return &write{
		verb: verb,
		kind: item.collection.kind,
		key:  item.Key,
		id:   documentID(item.collection.kind, item.Key),
		etag: item.ETag,
		encode: func(token string) ([]byte, error) {
			return item.collection.encode(item, token)
		},
		committed: func(etag string, document []byte) {
			item.ETag, item.read, item.Modified = etag, document, time.Now().UTC().Truncate(time.Second)
		},
	}
}

func (b *Batch) add(w *write) {
	if w.key.SubscriptionID != b.subscription {
		b.fail(fmt.Errorf("adding the %s %s to a batch of the subscription %s", w.kind, w.key.lower(), b.subscription))
		return
	}
	for _, other := range b.writes {
		if other.id == w.id {
			b.fail(fmt.Errorf("adding the %s %s to a batch twice", w.kind, w.key.lower()))
			return
		}
	}
	b.writes = append(b.writes, w)
}

// fail stores the caller's first mistake, which Commit returns.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
