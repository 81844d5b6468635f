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
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// resolveTimeout bounds the search for the outcome of a commit. canceledResolveTimeout bounds it if the caller's
// context has ended.
const (
	resolveTimeout         = 2 * time.Second
	canceledResolveTimeout = 300 * time.Millisecond
)

// WriteConflict identifies the document whose condition did not hold, so that nothing of a batch was written. It is in
// the chain of the error; use AsWriteConflict.
type WriteConflict struct {
	Kind Kind
	Key  Key
	// Exists is set if the document was to be created and exists. Otherwise the document was written since it was read.
	Exists bool
}

// Error implements error.
func (r *WriteConflict) Error() string {
	if r.Exists {
		return fmt.Sprintf("the %s %s already exists", r.Kind, r.Key.lower())
	}
	return fmt.Sprintf("the %s %s was written since it was read", r.Kind, r.Key.lower())
}

// AsWriteConflict returns the WriteConflict in the chain of err, if there is one.
func AsWriteConflict(err error) (*WriteConflict, bool) {
	var race *WriteConflict
	ok := errors.As(err, &race)
	return race, ok
}

// Commit writes the whole batch or nothing. After a success the items have their new ETags.
//
// If a condition did not hold, the error has the kind Conflict (a document to be created exists) or PreconditionFailed
// (a document was written since it was read), and AsWriteConflict returns the document. Throttling and transient
// failures are retried within the retry budget. After an error of the kind Unavailable the outcome is unknown; after
// any other error nothing was written.
//
// If ctx has an action that is audited (audit.WithAction), Commit waits until its beginning is durable, and writes nothing if it cannot be.
func (b *Batch) Commit(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	if len(b.writes) == 0 {
		return nil
	}
	if len(b.writes) > MaxBatchDocuments {
		return fmt.Errorf("committing a batch of %d documents: the limit is %d", len(b.writes), MaxBatchDocuments)
	}
	c := &commit{db: b.db, partition: azcosmos.NewPartitionKeyString(b.subscription), subscription: b.subscription, writes: b.writes, token: newToken()}
	if err := c.encode(); err != nil {
		return err
	}
	if err := audit.BeforeEffect(ctx); err != nil {
		return err
	}
	return c.run(ctx)
}

// commit is the execution of one batch. Its documents carry its token, by which it recognizes its own writes.
type commit struct {
	db           *DB
	partition    azcosmos.PartitionKey
	subscription string
	writes       []*write
	documents    [][]byte
	token        string
	// unknown is set after an attempt whose outcome is not known.
	unknown bool
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
	retries := newRetries(c.db.options.RetryBudget)
	for tombstones := 0; ; {
		failed, err := c.attempt(ctx)
		switch {
		case err == nil && failed == nil:
			return nil
		case err == nil && failed.exists && !c.unknown && tombstones < len(c.writes):
			over, findErr := c.overTombstone(ctx, failed.index)
			if findErr != nil {
				return findErr
			}
			if !over {
				return c.conflict(failed)
			}
			tombstones++
			continue
		case err == nil:
			return c.resolve(ctx, c.conflict(failed))
		}
		c.unknown = c.unknown || mayHaveCommitted(err)
		if !transient(err) {
			return c.resolve(ctx, failure(err, "committing a batch"))
		}
		if ctx.Err() != nil || !retries.wait(ctx, err) {
			return c.resolve(ctx, failure(errors.Join(err, ctx.Err()), "committing a batch"))
		}
	}
}

// refusal identifies the operation whose condition did not hold.
type refusal struct {
	index  int
	exists bool
}

// attempt sends the batch once. It returns a refusal if a condition did not hold, and an error for every other failure.
func (c *commit) attempt(ctx context.Context) (*refusal, error) {
	var response azcosmos.TransactionalBatchResponse
	used := c.db.connection.current.Load()
	err := c.db.connection.once(ctx, used, func(ctx context.Context, client *client) error {
		container := client.documents(c.subscription)
		batch := container.NewTransactionalBatch(c.partition)
		for i, w := range c.writes {
			if w.verb == create {
				batch.CreateItem(c.documents[i], nil)
				continue
			}
			etag := azcore.ETag(w.etag)
			batch.ReplaceItem(w.id, c.documents[i], &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &etag})
		}
		var err error
		response, err = container.ExecuteTransactionalBatch(ctx, batch, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	if response.Success {
		if len(response.OperationResults) != len(c.writes) {
			return nil, fmt.Errorf("committing a batch of %d documents: the response has %d results", len(c.writes), len(response.OperationResults))
		}
		for i, result := range response.OperationResults {
			c.writes[i].committed(string(result.ETag), c.documents[i])
		}
		return nil, nil
	}
	for i, result := range response.OperationResults {
		switch result.StatusCode {
		case http.StatusFailedDependency:
			continue
		case http.StatusConflict:
			return &refusal{index: i, exists: true}, nil
		// The TTL of a document that was read has ended, or the document was purged: this is a changed document, too.
		case http.StatusPreconditionFailed, http.StatusNotFound:
			return &refusal{index: i}, nil
		}
		return nil, &azcore.ResponseError{StatusCode: int(result.StatusCode), ErrorCode: http.StatusText(int(result.StatusCode)), RawResponse: response.RawResponse}
	}
	return nil, errors.New("committing a batch: the response has no failed operation")
}

func (c *commit) conflict(failed *refusal) error {
	w := c.writes[failed.index]
	race := &WriteConflict{Kind: w.kind, Key: w.key, Exists: failed.exists}
	if failed.exists {
		return apierror.New(apierror.Conflict, "The resource '%s' already exists.", w.key.ResourceID).WithTarget(w.key.ResourceID).WithCause(race)
	}
	return apierror.New(apierror.PreconditionFailed, "The resource '%s' has been changed by another request.", w.key.ResourceID).WithTarget(w.key.ResourceID).WithCause(race)
}

// overTombstone turns the create at index into a replace if the existing document is a tombstone. It reports whether
// the batch should be sent again.
func (c *commit) overTombstone(ctx context.Context, index int) (bool, error) {
	w := c.writes[index]
	document, err := c.db.readDocument(ctx, c.subscription, w.id)
	if err != nil {
		return false, err
	}
	if document == nil {
		// The tombstone has just expired: the create can be sent again.
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

// resolve finds out whether an earlier attempt with an unknown outcome was committed, after a later attempt failed with
// err. The batch is atomic, so the token in any of its documents proves the commit.
func (c *commit) resolve(ctx context.Context, err error) error {
	if !c.unknown {
		return err
	}
	// A caller whose context has ended also gets the outcome, if it is found quickly.
	timeout := resolveTimeout
	if ctx.Err() != nil {
		timeout = canceledResolveTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	committed := false
	found := make([]envelope, len(c.writes))
	for i, w := range c.writes {
		document, readErr := c.db.readDocument(ctx, c.subscription, w.id)
		if readErr != nil {
			// The error must not contain the WriteConflict of the later attempt. The conflict may be with the earlier
			// attempt, and a caller that decides again would take its own commit for another writer's.
			return apierror.New(apierror.Unavailable, "The service's store cannot be reached.").WithRetryAfter(2 * time.Second).
				WithCause(fmt.Errorf("finding the outcome of a commit, after %v: %w", err, readErr))
		}
		if document == nil {
			continue
		}
		if decodeErr := json.Unmarshal(document, &found[i]); decodeErr != nil {
			return fmt.Errorf("finding the outcome of a commit, after %v: %w", err, decodeErr)
		}
		committed = committed || slices.Contains(found[i].Commits, c.token)
	}
	if !committed {
		if _, lost := AsWriteConflict(err); !lost && apierror.KindOf(err) == apierror.Throttled {
			// An attempt before the throttled one may still be executed.
			return apierror.New(apierror.Unavailable, "The service is busy.").WithRetryAfter(2 * time.Second).WithCause(err)
		}
		return err
	}
	for i, w := range c.writes {
		// If another writer has written since, the ETag is unknown. The next write of the item must fail.
		etag := "\"overtaken\""
		if len(found[i].Commits) > 0 && found[i].Commits[0] == c.token {
			etag = found[i].ETag
		}
		w.committed(etag, c.documents[i])
	}
	return nil
}
