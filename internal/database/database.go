// Package database is hcpmesh's view of Cosmos DB for NoSQL, and the only package that speaks to it: typed documents,
// compare-and-swap as the only way to replace one, atomic batches within a subscription, the change feed, and leases by which
// replicas share work.
//
// Every document lives in an envelope: its id derives from its ARM resource id, its partition is the subscription. A
// read gives an Item, which remembers the ETag and the fields this release does not know; a write takes the Item back, so
// that it succeeds only on what was read and loses nothing. Removal is soft first, because a change feed shows no deletes:
// a tombstone is left that readers do not see, and that Cosmos DB expires.
//
// A writer reads, decides, adds its writes to a Batch and commits it, all inside Retry, which runs it again when another
// writer was faster. A commit whose answer was lost is found again by the token it left in its documents, so an error
// from Commit never means that the writes happened unless its kind is Unavailable.
package database

import (
	"time"
)

// Kind is the type of a document, as the field `kind` says it.
type Kind string

// The kinds of the container Resources.
const (
	ClusterKind      Kind = "cluster"
	NodePoolKind     Kind = "nodePool"
	ExternalAuthKind Kind = "externalAuth"
	OperationKind    Kind = "operation"
	SubscriptionKind Kind = "subscription"
	ReservationKind  Kind = "reservation"
	CredentialKind   Kind = "adminCredential"
	FenceKind        Kind = "gate"

	AdminOperationKind Kind = "adminOperation"
	ElevationKind      Kind = "elevation"
)

// How long documents are kept: an operation after it became terminal, and a removed document.
const (
	OperationTTL = 7 * 24 * time.Hour
	TombstoneTTL = 24 * time.Hour
	// AuditTTL is how long what SREs did is kept, from its last change on.
	AuditTTL = 400 * 24 * time.Hour
)

// Key names a document: within its subscription's partition, by its ARM id. The functions in key.go make the keys of
// each kind.
type Key struct {
	// SubscriptionID in lower case is the partition key.
	SubscriptionID string
	// ResourceID in any casing.
	ResourceID string
}

// Item is a document as it was read, ready to be replaced. It is not safe for concurrent use.
type Item[T any] struct {
	Key   Key
	Value T
	// ETag of what was read, or of what the last commit wrote; writes are conditioned on it. Weak comparison does not
	// apply: Cosmos DB's are strong.
	ETag string
	// Modified is the server's time of the last write that was read, in whole seconds.
	Modified time.Time
	// Removed is when the document was softly removed; nil while it lives.
	Removed *time.Time

	collection *Collection[T]
	// read is the document as it was read; from it a write takes the fields of other releases, and the commit tokens.
	read []byte
}

// DB is a connection to one Cosmos DB account's database of hcpmesh. It is safe for concurrent use.
type DB struct {
	options    Options
	connection *connection

	clusters      *Collection[ClusterDocument]
	nodePools     *Collection[NodePoolDocument]
	externalAuths *Collection[ExternalAuthDocument]
	operations    *Collection[OperationDocument]
	subscriptions *Collection[SubscriptionDocument]
	reservations  *Collection[ReservationDocument]
	credentials   *Collection[CredentialDocument]
	fences        *Collection[fenceDocument]

	adminOperations *Collection[AdminOperationDocument]
	elevations      *Collection[ElevationDocument]
}

// Clusters holds the clusters.
func (db *DB) Clusters() *Collection[ClusterDocument] { return db.clusters }

// NodePools holds the node pools.
func (db *DB) NodePools() *Collection[NodePoolDocument] { return db.nodePools }

// ExternalAuths holds the external auths.
func (db *DB) ExternalAuths() *Collection[ExternalAuthDocument] { return db.externalAuths }

// Operations holds the asynchronous operations. A terminal one is written with a time to live that ends OperationTTL after
// its end.
func (db *DB) Operations() *Collection[OperationDocument] { return db.operations }

// Subscriptions holds the subscriptions.
func (db *DB) Subscriptions() *Collection[SubscriptionDocument] { return db.subscriptions }

// Reservations holds what may be used once in a subscription.
func (db *DB) Reservations() *Collection[ReservationDocument] { return db.reservations }

// Credentials holds the requests for admin credentials. One that is not pending is written with a time to live of
// OperationTTL.
func (db *DB) Credentials() *Collection[CredentialDocument] { return db.credentials }

// AdminOperations holds what SREs asked for, executed or not. They are the durable record of it.
func (db *DB) AdminOperations() *Collection[AdminOperationDocument] { return db.adminOperations }

// Elevations holds the elevations of SREs, ended or not.
func (db *DB) Elevations() *Collection[ElevationDocument] { return db.elevations }

func newDB(options Options, connection *connection) *DB {
	db := &DB{options: options, connection: connection}
	db.clusters = newCollection[ClusterDocument](db, ClusterKind)
	db.nodePools = newCollection[NodePoolDocument](db, NodePoolKind)
	db.externalAuths = newCollection[ExternalAuthDocument](db, ExternalAuthKind)
	db.operations = newCollection[OperationDocument](db, OperationKind)
	db.operations.ttl = func(o *OperationDocument) time.Duration {
		switch {
		case !o.Status.Terminal():
			return 0
		case o.EndTime == nil:
			return OperationTTL
		}
		// Cosmos DB counts from the last write, which need not be the end.
		return max(OperationTTL-time.Since(*o.EndTime), time.Second)
	}
	db.subscriptions = newCollection[SubscriptionDocument](db, SubscriptionKind)
	db.reservations = newCollection[ReservationDocument](db, ReservationKind)
	db.credentials = newCollection[CredentialDocument](db, CredentialKind)
	db.credentials.ttl = func(c *CredentialDocument) time.Duration {
		if c.State != CredentialPending {
			return OperationTTL
		}
		return 0
	}
	db.fences = newCollection[fenceDocument](db, FenceKind)
	db.adminOperations = newCollection[AdminOperationDocument](db, AdminOperationKind)
	db.adminOperations.ttl = func(*AdminOperationDocument) time.Duration { return AuditTTL }
	db.elevations = newCollection[ElevationDocument](db, ElevationKind)
	db.elevations.ttl = func(*ElevationDocument) time.Duration { return AuditTTL }
	return db
}
