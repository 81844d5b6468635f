package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// resolveTimeout bounds finding out about a commit, goneTimeout when its caller has gone.
const (
	resolveTimeout = 2 * time.Second
	goneTimeout    = 300 * time.Millisecond
)

// WriteConflict is the document because of which a batch was not committed. It is in the chain of the error; use AsWriteConflict.
type WriteConflict struct {
	Kind Kind
	Key  Key
	// Exists is set when the document was to be created and somebody has; otherwise it has been written since it was read.
	Exists bool
}

// Error names the document.
func (r *WriteConflict) Error() string {
	if r.Exists {
		return fmt.Sprintf("the %s %s exists already", r.Kind, r.Key.lower())
	}
	return fmt.Sprintf("the %s %s has been written by another since it was read", r.Kind, r.Key.lower())
}

// AsWriteConflict returns the document whose condition did not hold, if that is why err happened.
func AsWriteConflict(err error) (*WriteConflict, bool) {
	var race *WriteConflict
	ok := errors.As(err, &race)
	return race, ok
}

// Commit writes all of the batch or nothing. Afterwards the items have their new ETags.
//
// When a condition did not hold the error is of kind Conflict (a document to be created exists) or PreconditionFailed (a
// document was written since it was read), and AsWriteConflict says which. Throttling and passing faults are retried within the
// budget. An error of kind Unavailable alone leaves the outcome open.
func (b *Batch) Commit(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	if len(b.writes) == 0 {
		return nil
	}
	if len(b.writes) > MaxBatchDocuments {
		return fmt.Errorf("a batch of %d documents is over the limit of %d", len(b.writes), MaxBatchDocuments)
	}
	c := &commit{db: b.db, partition: azcosmos.NewPartitionKeyString(b.subscription), subscription: b.subscription, writes: b.writes, token: newToken()}
	if err := c.encode(); err != nil {
		return err
	}
	return c.run(ctx)
}

// commit is one batch on its way. All its documents carry its token, by which it recognises its own writes.
type commit struct {
	db           *DB
	partition    azcosmos.PartitionKey
	subscription string
	writes       []*write
	documents    [][]byte
	token        string
	// open is set once an attempt may have been committed without our knowing.
	open bool
}

func (c *commit) encode() error {
	size := 0
	for _, w := range c.writes {
		document, err := w.encode(c.token)
		if err != nil {
			return err
		}
		c.documents = append(c.documents, document)
		size += len(document)
	}
	if size > MaxBatchBytes {
		return apierror.New(apierror.InvalidResource, "The request writes %d bytes, more than fit in one transaction.", size)
	}
	return nil
}

func (c *commit) run(ctx context.Context) error {
	backoff := newBackoff(c.db.options.RetryBudget)
	for tombstones := 0; ; {
		failed, err := c.attempt(ctx)
		switch {
		case err == nil && failed == nil:
			return nil
		case err == nil && failed.exists && !c.open && tombstones < len(c.writes):
			over, findErr := c.overTombstone(ctx, failed.index)
			if findErr != nil {
				return findErr
			}
			if !over {
				return c.lost(failed)
			}
			tombstones++
			continue
		case err == nil:
			return c.resolve(ctx, c.lost(failed))
		}
		c.open = c.open || unsettled(err)
		if !transient(err) {
			return c.resolve(ctx, failure(err, "committing a batch"))
		}
		if ctx.Err() != nil || !backoff.wait(ctx, err) {
			return c.resolve(ctx, failure(errors.Join(err, ctx.Err()), "committing a batch"))
		}
	}
}

// refusal is the operation because of which Cosmos DB did not commit the batch.
type refusal struct {
	index  int
	exists bool
}

// attempt sends the batch once. It returns a refusal when a condition did not hold, and an error for everything else.
func (c *commit) attempt(ctx context.Context) (*refusal, error) {
	var response azcosmos.TransactionalBatchResponse
	used := c.db.connection.current.Load()
	err := c.db.connection.once(ctx, used, func(ctx context.Context, client *client) error {
		batch := client.resources.NewTransactionalBatch(c.partition)
		for i, w := range c.writes {
			if w.verb == create {
				batch.CreateItem(c.documents[i], nil)
				continue
			}
			etag := azcore.ETag(w.etag)
			batch.ReplaceItem(w.id, c.documents[i], &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &etag})
		}
		var err error
		response, err = client.resources.ExecuteTransactionalBatch(ctx, batch, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	if response.Success {
		if len(response.OperationResults) != len(c.writes) {
			return nil, fmt.Errorf("a batch of %d documents was answered with %d results", len(c.writes), len(response.OperationResults))
		}
		for i, result := range response.OperationResults {
			c.writes[i].settle(string(result.ETag), c.documents[i])
		}
		return nil, nil
	}
	for i, result := range response.OperationResults {
		switch result.StatusCode {
		case http.StatusFailedDependency:
			continue
		case http.StatusConflict:
			return &refusal{index: i, exists: true}, nil
		// A document that was read and is gone has been expired or purged: it is not what was read either.
		case http.StatusPreconditionFailed, http.StatusNotFound:
			return &refusal{index: i}, nil
		}
		return nil, &azcore.ResponseError{StatusCode: int(result.StatusCode), ErrorCode: http.StatusText(int(result.StatusCode)), RawResponse: response.RawResponse}
	}
	return nil, errors.New("a batch was refused without a reason")
}

func (c *commit) lost(failed *refusal) error {
	w := c.writes[failed.index]
	race := &WriteConflict{Kind: w.kind, Key: w.key, Exists: failed.exists}
	if failed.exists {
		return apierror.New(apierror.Conflict, "The resource '%s' exists already.", w.key.ResourceID).WithTarget(w.key.ResourceID).WithCause(race)
	}
	return apierror.New(apierror.PreconditionFailed, "The resource '%s' has been changed by another request.", w.key.ResourceID).WithTarget(w.key.ResourceID).WithCause(race)
}

// overTombstone turns the create at index into a replace of the tombstone that is in its way, if that is what it is.
func (c *commit) overTombstone(ctx context.Context, index int) (bool, error) {
	w := c.writes[index]
	document, err := c.db.readResource(ctx, c.subscription, w.id)
	if err != nil {
		return false, err
	}
	if document == nil {
		// It expired just now: the create may simply be sent again.
		return true, nil
	}
	var e envelope
	if err := json.Unmarshal(document, &e); err != nil {
		return false, fmt.Errorf("decoding the %s %s: %w", w.kind, w.key.lower(), err)
	}
	if e.DeletionTimestamp == nil {
		return false, nil
	}
	w.verb, w.etag = replace, e.ETag
	return true, nil
}

// resolve finds out whether an earlier attempt of the batch was committed, after a later one ended with err. As the
// batch is atomic, the token in any one of its documents proves that.
func (c *commit) resolve(ctx context.Context, err error) error {
	if !c.open {
		return err
	}
	// Even a caller that has run out of time is better served by the truth.
	timeout := resolveTimeout
	if ctx.Err() != nil {
		timeout = goneTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	committed := false
	found := make([]envelope, len(c.writes))
	for i, w := range c.writes {
		document, readErr := c.db.readResource(ctx, c.subscription, w.id)
		if readErr != nil {
			// The race of the later attempt, if that is what err is, must not be seen: it may be one with the earlier attempt, and
			// whoever decides anew then takes his own commit for somebody else's.
			return apierror.New(apierror.Unavailable, "The service's store cannot be reached.").WithRetryAfter(2 * time.Second).
				WithCause(fmt.Errorf("finding out about a commit, after %v: %w", err, readErr))
		}
		if document == nil {
			continue
		}
		if decodeErr := json.Unmarshal(document, &found[i]); decodeErr != nil {
			return fmt.Errorf("finding out about a commit, after %v: %w", err, decodeErr)
		}
		committed = committed || slices.Contains(found[i].Commits, c.token)
	}
	if !committed {
		if _, lost := AsWriteConflict(err); !lost && apierror.KindOf(err) == apierror.Throttled {
			// An attempt before the throttled one may still be on its way.
			return apierror.New(apierror.Unavailable, "The service is busy.").WithRetryAfter(2 * time.Second).WithCause(err)
		}
		return err
	}
	for i, w := range c.writes {
		// Where another has written since, the ETag is not ours: the item's next write must lose.
		etag := "\"overtaken\""
		if len(found[i].Commits) > 0 && found[i].Commits[0] == c.token {
			etag = found[i].ETag
		}
		w.settle(etag, c.documents[i])
	}
	return nil
}
