// Package database is hcpmesh's view of Cosmos DB for NoSQL, and the only package that speaks to it: typed documents,
// compare-and-swap as the only way to replace one, atomic batches within a subscription, and change-feed followers with
// durable positions.
//
// Every document lives in an Envelope: its id derives from its ARM resource id, its partition is the subscription. A
// read gives an Item, which remembers the ETag and the fields this release does not know; a write takes the Item back, so
// that it succeeds only on what was read and loses nothing. Removal is soft first, because a change feed shows no deletes:
// a tombstone is left that readers do not see, and that Cosmos DB expires.
package database

import (
	"context"
	"time"
)

// Kind is the type of a document, as the field `kind` says it.
type Kind string

// The kinds of the container Resources.
const (
	ClusterKind      Kind = "cluster"
	NodePoolKind     Kind = "nodePool"
	OperationKind    Kind = "operation"
	SubscriptionKind Kind = "subscription"
	ReservationKind  Kind = "reservation"
)

// OperationTTL is how long an operation is kept after its last change, TombstoneTTL how long a removed document is.
const (
	OperationTTL = 7 * 24 * time.Hour
	TombstoneTTL = 24 * time.Hour
)

// Key names a document: within its subscription's partition, by its ARM id (an operation's is
// /subscriptions/{s}/providers/{namespace}/locations/{location}/hcpOperationStatuses/{id}).
type Key struct {
	// SubscriptionID in lower case is the partition key.
	SubscriptionID string
	// ResourceID in any casing.
	ResourceID string
}

// Item is a document as it was read, ready to be replaced.
type Item[T any] struct {
	Key   Key
	Value T
	// ETag of what was read; writes are conditioned on it. Weak comparison does not apply: Cosmos DB's are strong.
	ETag string
	// Modified is the server's time of the last write, in whole seconds.
	Modified time.Time
	// Removed is when the document was softly removed; nil while it lives.
	Removed *time.Time

	// unknown holds the fields of other releases, which a replace writes back.
	unknown map[string]any
}

// Reader finds documents of one kind.
type Reader[T any] interface {
	// Get returns the live document; apierror kind ResourceNotFound when there is none or only a tombstone.
	Get(ctx context.Context, key Key) (*Item[T], error)
	// List returns one page of live documents of a subscription whose ARM ids start with prefix (lower case; empty means
	// all), in order of ARM id. limit is 1 to 1000. The continuation is empty on the last page.
	List(ctx context.Context, subscriptionID, prefix, continuation string, limit int) (items []*Item[T], next string, err error)
}
