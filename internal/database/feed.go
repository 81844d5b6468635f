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
)

// Change is the newest state of a document that has been written. Writes in quick succession may be one change; a
// removal is a change whose Removed is set. Documents of one partition come in the order of their last writes.
type Change struct {
	Kind    Kind
	Key     Key
	Removed bool

	document []byte
}

// DecodeChange is the document of a change, of the collection's kind.
func DecodeChange[T any](c *Collection[T], change Change) (*Item[T], error) {
	return c.decode(change.document)
}

// ProvisioningState is the state of a document that has one.
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

// Handler takes changes in their order. As long as it returns an error the same changes come again, after a back-off, so it must be
// idempotent.
type Handler func(ctx context.Context, changes []Change) error

// FeedOptions tune how a follower reads the change feed, which Cosmos DB only lets it ask for.
type FeedOptions struct {
	// BusyInterval is how soon the feed is asked again after it had changes, Idle the longest it is left alone; every empty
	// answer doubles the pause from one towards the other. 0 means 25 ms and 1 s.
	BusyInterval, IdleInterval time.Duration
	// PageSize is the most changes that a handler gets at once; 0 means 200.
	PageSize int
	Log      *slog.Logger
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

// Tail calls handler for every change of the container Resources from since (to the second) on, in every replica that
// asks, until ctx ends. It keeps no position: whoever needs to know what happened before lists it, after Tail has begun.
func (db *DB) Tail(ctx context.Context, since time.Time, options FeedOptions, handler Handler) error {
	options.complete()
	f := &feed{db: db, options: options, span: azcosmos.FeedRange{MinInclusive: "", MaxExclusive: "FF"}, since: &since}
	return f.follow(ctx, handler)
}

// feed reads the change feed of the container Resources.
type feed struct {
	db      *DB
	options FeedOptions
	span    azcosmos.FeedRange
	since   *time.Time
	// position is azcosmos's token: where every physical range within the span stands. Empty is since.
	position string
}

// follow reads and handles until ctx ends.
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
			f.options.Log.WarnContext(ctx, "following the change feed", "error", err)
			pause = min(2*pause, mostBackoff)
		default:
			f.position = position
			pause = min(2*pause, f.options.IdleInterval)
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

// sleep waits for the pause. Jitter keeps followers from asking in step.
func (f *feed) sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause - rand.N(pause/8+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// next reads one page after the position.
func (f *feed) next(ctx context.Context) ([]Change, string, error) {
	var response azcosmos.ChangeFeedResponse
	err := f.db.connection.do(ctx, func(ctx context.Context, client *client) error {
		options := &azcosmos.ChangeFeedOptions{MaxItemCount: int32(f.options.PageSize), FeedRange: &f.span, StartFrom: f.since}
		if f.position != "" {
			options.Continuation = &f.position
		}
		var err error
		response, err = client.resources.ReadChangeFeed(ctx, options)
		return err
	})
	if err != nil {
		return nil, "", failure(err, "reading the change feed")
	}
	changes := make([]Change, 0, len(response.Items))
	for _, document := range response.Items {
		change, err := readChange(document)
		if err != nil {
			// It would be the same the next time, and nothing that was written since would ever be heard of.
			f.options.Log.ErrorContext(ctx, "the change feed shows a document that cannot be read; it is passed over", "error", err)
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

// readChange decodes only what finds the document: most who hear of changes need few of them.
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
