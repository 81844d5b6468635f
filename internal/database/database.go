// Package database stores hcpmesh's documents in Cosmos DB for NoSQL. It is the only package that uses the Cosmos DB
// client. It provides typed documents, compare-and-swap as the only way to replace one, atomic batches within a
// subscription, the change feed, and leases by which replicas share work.
//
// Every document is stored in an envelope: its ID derives from its ARM resource ID, and its partition is the
// subscription. A read returns an Item, which holds the ETag and the fields that this release does not know. A write of
// the Item succeeds only if the document still has that ETag, and it preserves the unknown fields. Removal is soft,
// because a change feed shows no deletions: it leaves a tombstone that readers ignore and that Cosmos DB removes when
// its TTL ends.
//
// A writer reads, decides, adds its writes to a Batch and commits it, all inside Retry, which repeats this when another
// writer was faster. Every commit leaves a token in its documents. If the response to a commit is lost, Commit finds
// the token by reading. Therefore an error of Commit means that nothing was written, unless its kind is Unavailable.
package database

import (
	"time"
)

// Kind is the type of a document, stored in its field `kind`.
type Kind string

// The kinds of the container Resources. FenceKind has the name under which earlier releases stored fences.
const (
	ClusterKind      Kind = "cluster"
	NodePoolKind     Kind = "nodePool"
	ExternalAuthKind Kind = "externalAuth"
	OperationKind    Kind = "operation"
	SubscriptionKind Kind = "subscription"
	ReservationKind  Kind = "reservation"
	CredentialKind   Kind = "adminCredential"
	FenceKind        Kind = "gate"

	AdminOperationKind    Kind = "adminOperation"
	ElevationKind         Kind = "elevation"
	ComponentAbsencesKind Kind = "componentAbsences"
	TicketChecksKind      Kind = "ticketChecks"

	SessionKind         Kind = "session"
	AccessSessionKind   Kind = "accessSession"
	AccessRecordingKind Kind = "accessRecording"
	EgressLinkKind      Kind = "egressLink"
)

// How long documents are kept: an operation after it became terminal, and a tombstone.
const (
	OperationTTL = 7 * 24 * time.Hour
	TombstoneTTL = 24 * time.Hour
	// AuditTTL is how long admin operations and elevations are kept after their last change.
	AuditTTL = 400 * 24 * time.Hour
	// AccessSessionTTL is how long an access session is kept after its end. The audit has its records for longer.
	AccessSessionTTL = 30 * 24 * time.Hour
	// AccessRecordingTTL is how long the description of a recording is kept after its end. The storage of recordings deletes them at the same age.
	AccessRecordingTTL = 90 * 24 * time.Hour
)

// Key identifies a document by its subscription and its ARM resource ID. The functions in key.go return the keys of
// each kind.
type Key struct {
	// SubscriptionID in lower case. It is the partition key.
	SubscriptionID string
	// ResourceID in any casing.
	ResourceID string
}

// Item is a document as it was read or written last. It is not safe for concurrent use.
type Item[T any] struct {
	Key   Key
	Value T
	// ETag is the version that was read, or that the last commit wrote. Writes are conditioned on it. Cosmos DB's ETags
	// are strong, so that weak comparison does not apply.
	ETag string
	// Modified is the server's time of the last write, in whole seconds.
	Modified time.Time
	// Removed is when the document became a tombstone, or nil.
	Removed *time.Time

	collection *Collection[T]
	// read is the stored document. A write copies the unknown fields and the commit tokens from it.
	read []byte
}

// DB is a connection to hcpmesh's database in one Cosmos DB account. It is safe for concurrent use.
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

	componentAbsences *Collection[ComponentAbsencesDocument]
	ticketChecks      *Collection[TicketChecksDocument]

	sessions         *Collection[SessionDocument]
	accessSessions   *Collection[AccessSessionDocument]
	accessRecordings *Collection[AccessRecordingDocument]
	egressLinks      *Collection[EgressLinkDocument]
}

// Clusters returns the collection of clusters.
func (db *DB) Clusters() *Collection[ClusterDocument] { return db.clusters }

// NodePools returns the collection of node pools.
func (db *DB) NodePools() *Collection[NodePoolDocument] { return db.nodePools }

// ExternalAuths returns the collection of external authentications.
func (db *DB) ExternalAuths() *Collection[ExternalAuthDocument] { return db.externalAuths }

// Operations returns the collection of asynchronous operations. Cosmos DB removes a terminal operation OperationTTL
// after its end.
func (db *DB) Operations() *Collection[OperationDocument] { return db.operations }

// Subscriptions returns the collection of subscriptions.
func (db *DB) Subscriptions() *Collection[SubscriptionDocument] { return db.subscriptions }

// Reservations returns the collection of reservations, which make names unique in a subscription.
func (db *DB) Reservations() *Collection[ReservationDocument] { return db.reservations }

// Credentials returns the collection of admin credentials. Cosmos DB removes a credential OperationTTL after the last
// write, unless it is pending.
func (db *DB) Credentials() *Collection[CredentialDocument] { return db.credentials }

// AdminOperations returns the collection of admin operations. They are the durable record of all requested actions.
func (db *DB) AdminOperations() *Collection[AdminOperationDocument] { return db.adminOperations }

// Elevations returns the collection of elevations, active or not.
func (db *DB) Elevations() *Collection[ElevationDocument] { return db.elevations }

// ComponentAbsences returns the collection of the one document with the components that are away.
func (db *DB) ComponentAbsences() *Collection[ComponentAbsencesDocument] { return db.componentAbsences }

// TicketChecks returns the collection of the one document with the questions about tickets of active elevations.
func (db *DB) TicketChecks() *Collection[TicketChecksDocument] { return db.ticketChecks }

// Sessions returns the collection of the sessions of the portal. Cosmos DB removes a session when it expires.
func (db *DB) Sessions() *Collection[SessionDocument] { return db.sessions }

// AccessSessions returns the collection of access sessions. Cosmos DB removes an ended session AccessSessionTTL after the last write.
func (db *DB) AccessSessions() *Collection[AccessSessionDocument] { return db.accessSessions }

// AccessRecordings returns the collection of the descriptions of recordings. Cosmos DB removes one AccessRecordingTTL after the last write.
func (db *DB) AccessRecordings() *Collection[AccessRecordingDocument] { return db.accessRecordings }

// EgressLinks returns the collection of egress links. Cosmos DB removes the document of a removed link TombstoneTTL after the last write.
func (db *DB) EgressLinks() *Collection[EgressLinkDocument] { return db.egressLinks }

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
		// Cosmos DB counts the TTL from the last write, which may be later than the end of the operation.
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
	db.componentAbsences = newCollection[ComponentAbsencesDocument](db, ComponentAbsencesKind)
	db.ticketChecks = newCollection[TicketChecksDocument](db, TicketChecksKind)
	db.sessions = newCollection[SessionDocument](db, SessionKind)
	db.sessions.ttl = sessionTTL
	db.accessSessions = newCollection[AccessSessionDocument](db, AccessSessionKind)
	db.accessSessions.ttl = func(s *AccessSessionDocument) time.Duration {
		if s.State == AccessSessionEnded {
			return AccessSessionTTL
		}
		return 0
	}
	db.accessRecordings = newCollection[AccessRecordingDocument](db, AccessRecordingKind)
	db.accessRecordings.ttl = func(*AccessRecordingDocument) time.Duration { return AccessRecordingTTL }
	db.egressLinks = newCollection[EgressLinkDocument](db, EgressLinkKind)
	db.egressLinks.ttl = func(l *EgressLinkDocument) time.Duration {
		if l.RemovedTime != nil {
			return TombstoneTTL
		}
		return 0
	}
	return db
}
