package database

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Change is the newest state of a written document. Writes in quick succession may appear as one change. Removed is set
// for tombstones. The changes of one partition arrive in the order of their last writes.
type Change struct {
	Kind    Kind
	Key     Key
	Removed bool

	document []byte
}

// DecodeChange returns the item of a change of the collection's kind.
func DecodeChange[T any](c *Collection[T], change Change) (*Item[T], error) {
	return c.decode(change.document)
}

// ProvisioningState returns the provisioning state of the document. ok is false if the document has none.
func (c Change) ProvisioningState() (state hub.ProvisioningState, ok bool) {
	var e struct {
		Properties struct {
			ProvisioningState hub.ProvisioningState `json:"provisioningState"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(c.document, &e); err != nil {
		return "", false
	}
	return e.Properties.ProvisioningState, e.Properties.ProvisioningState != ""
}

// Handler receives changes in their order. After an error it receives the same changes again, after a pause, so it must
// be idempotent.
type Handler func(ctx context.Context, changes []Change) error

// FeedOptions configure polling of the change feed. Cosmos DB has no push interface.
type FeedOptions struct {
	// BusyInterval is the pause after a poll that returned changes. Each empty poll doubles the pause, up to
	// IdleInterval. 0 means 25 ms and 1 s.
	BusyInterval, IdleInterval time.Duration
	// PageSize is the largest number of changes per call of the handler; 0 means 200.
	PageSize int
	// Read is called after each successful read, when the changes that it returned were handled; may be nil. A caller that must not act on
	// old documents measures the time since then.
	Read func()
	Log  *slog.Logger
}

func (o *FeedOptions) complete() {
	if o.BusyInterval == 0 {
		o.BusyInterval = 25 * time.Millisecond
	}
	if o.IdleInterval == 0 {
		o.IdleInterval = time.Second
	}
	if o.PageSize == 0 {
		o.PageSize = 200
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Tail calls handler for every change of the container Resources since a time, with a resolution of one second, until
// ctx ends. Every replica that calls Tail receives all changes. Tail stores no position: callers that need earlier
// changes list the documents after Tail has begun.
func (db *DB) Tail(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	return db.tail(ctx, "", since, options, handler)
}

// TailAdmin is Tail for the container Admin: admin operations and elevations.
func (db *DB) TailAdmin(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	return db.tail(ctx, AdminPartition, since, options, handler)
}

// TailAccessSessions is Tail for the container AccessSessions.
func (db *DB) TailAccessSessions(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	return db.tail(ctx, accessSessionPartition, since, options, handler)
}

// TailEgressLinks is Tail for the container EgressLinks.
func (db *DB) TailEgressLinks(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	return db.tail(ctx, egressLinkPartition, since, options, handler)
}

// TailSessions is Tail for the container Sessions.
func (db *DB) TailSessions(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	return db.tail(ctx, sessionPartition, since, options, handler)
}

func (db *DB) tail(ctx context.Context, partition string, since time.Time, options FeedOptions, handler Handler) error {
	options.complete()
	f := &feed{db: db, partition: partition, options: options, span: azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}, since: &since}
	return f.follow(ctx, handler)
}

// feed reads the change feed of one container.
type feed struct {
	db *DB
	// partition is one that the container has; "" stands for those of all subscriptions.
	partition string

	options FeedOptions
	span    azcosmos.FeedRange
	since   *time.Time
	// position is azcosmos's continuation token for all physical partitions of the span. Empty means since.
	position string
}

// follow polls and calls handler until ctx ends.
func (f *feed) follow(ctx context.Context, handler Handler) error {
	pause := f.options.BusyInterval
	for {
		changes, position, err := f.next(ctx)
		if err == nil && len(changes) > 0 {
			err = handler(ctx, changes)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			f.options.Log.WarnContext(ctx, "reading the change feed failed; retrying", logkey.Error, err)
			pause = min(2*pause, maxBackoff)
		default:
			f.position = position
			pause = min(2*pause, f.options.IdleInterval)
			if f.options.Read != nil && len(changes) < f.options.PageSize {
				f.options.Read()
			}
		}
		if err == nil && len(changes) > 0 {
			pause = f.options.BusyInterval
		}
		if len(changes) == f.options.PageSize && err == nil {
			continue
		}
		if !f.sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// sleep waits for the pause less a random part, so that followers do not poll at the same time.
func (f *feed) sleep(ctx context.Context, pause time.Duration) bool {
	return backoff.Sleep(ctx, pause-rand.N(pause/8+1)) == nil
}

// next returns the page after the position.
func (f *feed) next(ctx context.Context) ([]Change, string, error) {
	var response azcosmos.ChangeFeedResponse
	err := f.db.connection.do(ctx, func(ctx context.Context, client *client) error {
		options := &azcosmos.ChangeFeedOptions{MaxItemCount: int32(f.options.PageSize), FeedRange: &f.span, StartFrom: f.since}
		if f.position != "" {
			options.Continuation = &f.position
		}
		var err error
		response, err = client.documents(f.partition).ReadChangeFeed(ctx, options)
		return err
	})
	if err != nil {
		return nil, "", failure(err, "reading the change feed")
	}
	changes := make([]Change, 0, len(response.Items))
	for _, document := range response.Items {
		change, err := readChange(document)
		if err != nil {
			// Reading it again would fail again, and the feed would never get past it.
			f.options.Log.ErrorContext(ctx, "skipping a document of the change feed that cannot be decoded", logkey.Error, err)
			continue
		}
		changes = append(changes, change)
	}
	position := response.ContinuationToken
	if position == "" {
		position = f.position
	}
	return changes, position, nil
}

// readChange decodes only the identity of a document, because most receivers ignore most changes.
func readChange(document []byte) (Change, error) {
	var e struct {
		PartitionKey      string          `json:"partitionKey"`
		Kind              Kind            `json:"kind"`
		ResourceID        string          `json:"resourceId"`
		DeletionTimestamp json.RawMessage `json:"deletionTimestamp"`
	}
	if err := json.Unmarshal(document, &e); err != nil {
		return Change{}, fmt.Errorf("decoding the document %s: %w", idOf(document), err)
	}
	return Change{
		Kind: e.Kind, Key: Key{SubscriptionID: e.PartitionKey, ResourceID: e.ResourceID}, Removed: len(e.DeletionTimestamp) > 0, document: document,
	}, nil
}
