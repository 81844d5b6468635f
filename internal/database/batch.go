package database

import (
	"fmt"
	"strings"
	"time"
)

// MaxBatchDocuments is how many documents one batch may write; its encoded size is limited to MaxBatchBytes.
const (
	MaxBatchDocuments = 100
	MaxBatchBytes     = 2 << 20
)

// Batch collects writes within one subscription that happen together or not at all. The functions Create, Replace and
// Remove add to it; Commit writes it. It is used once, by one goroutine.
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
	// etag that a replace is conditioned on.
	etag string
	// encode makes the document that carries token among its commits.
	encode func(token string) ([]byte, error)
	// settle tells the item what was written.
	settle func(etag string, document []byte)
}

// NewBatch starts a batch of writes to a subscription's documents.
func (db *DB) NewBatch(subscriptionID string) *Batch {
	return &Batch{db: db, subscription: strings.ToLower(subscriptionID)}
}

// Len is how many documents the batch writes.
func (b *Batch) Len() int { return len(b.writes) }

// Create adds a document that must not exist yet; a tombstone does not count, and is replaced. The item returned has its
// ETag once the batch is committed.
func Create[T any](b *Batch, c *Collection[T], key Key, value T) *Item[T] {
	key.SubscriptionID = strings.ToLower(key.SubscriptionID)
	item := &Item[T]{Key: key, Value: value, collection: c}
	b.add(newWrite(create, item))
	return item
}

// Replace adds the item's Value, on the condition that nobody has written the document since it was read. An unchanged
// Value is a way to make the rest of the batch depend on that.
func Replace[T any](b *Batch, item *Item[T]) {
	if item.collection == nil || item.ETag == "" || item.Removed != nil {
		b.fail(fmt.Errorf("replacing the document %s, which was not read or is removed", item.Key.lower()))
		return
	}
	b.add(newWrite(replace, item))
}

// Remove adds the removal of the document, on the same condition: it becomes a tombstone, which Cosmos DB expires after
// TombstoneTTL.
func Remove[T any](b *Batch, item *Item[T]) {
	if item.collection == nil || item.ETag == "" || item.Removed != nil {
		b.fail(fmt.Errorf("removing the document %s, which was not read or is removed", item.Key.lower()))
		return
	}
	tombstone := *item
	now := time.Now().UTC().Truncate(time.Second)
	tombstone.Removed = &now
	w := newWrite(replace, &tombstone)
	settle := w.settle
	w.settle = func(etag string, document []byte) {
		settle(etag, document)
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
		settle: func(etag string, document []byte) {
			item.ETag, item.read, item.Modified = etag, document, time.Now().UTC().Truncate(time.Second)
		},
	}
}

func (b *Batch) add(w *write) {
	if w.key.SubscriptionID != b.subscription {
		b.fail(fmt.Errorf("the %s %s is not of the batch's subscription %s", w.kind, w.key.lower(), b.subscription))
		return
	}
	for _, other := range b.writes {
		if other.id == w.id {
			b.fail(fmt.Errorf("the %s %s is written twice in a batch", w.kind, w.key.lower()))
			return
		}
	}
	b.writes = append(b.writes, w)
}

// fail remembers the first mistake of the caller; Commit returns it.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
