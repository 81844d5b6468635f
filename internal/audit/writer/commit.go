package writer

import (
	"context"
	"errors"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// committer writes entries to the queue and makes them durable. It is used by one goroutine. Another one runs the sync, so that entries
// are written meanwhile.
type committer struct {
	*Writer
	// unsynced are the entries that are written and not durable, in their order. The first covered ones are part of the sync that runs.
	unsynced []*entry
	covered  int
	// syncing reports whether a sync runs, and synced has its result. target is the position after it.
	syncing bool
	synced  chan error
	target  audit.Position
	// backlog are outcomes that must be stored although nobody waits for them: their callers have their answer, or do not exist.
	backlog []*entry
	// left are outcomes for the backlog that wait until the chain has the checkpoint of this start.
	left []*entry
	// signed is false until the chain has the checkpoint of this start. unsigned is the number of records after the latest checkpoint.
	signed   bool
	unsigned int
	// due fires when a checkpoint is due, or a write is to be repeated.
	due *time.Timer
}

func newCommitter(w *Writer) *committer {
	return &committer{Writer: w, synced: make(chan error, 1), left: w.left, due: time.NewTimer(checkpointAfter)}
}

// ending is what a write adds behind its records.
type ending int

const (
	nothing ending = iota
	checkpoint
	// end is the checkpoint that closes the chain.
	end
)

// run writes entries until ctx ends. It begins with a checkpoint and ends with one that closes the chain.
func (c *committer) run(ctx context.Context) {
	c.due.Stop()
	defer c.due.Stop()
	c.sign(ctx)
	for {
		select {
		case <-ctx.Done():
			c.drain(ctx)
			return
		case <-c.due.C:
			c.confirm(ctx)
		case first := <-c.entries:
			c.commit(ctx, c.collect(first))
		case err := <-c.synced:
			c.finish(ctx, err)
		}
		c.sync()
	}
}

// confirm stores a checkpoint.
func (c *committer) confirm(ctx context.Context) {
	if !c.signed {
		c.sign(ctx)
		return
	}
	_ = c.write(ctx, nil, checkpoint) // it is logged
}

// sign stores the checkpoint of this start, before all records: nobody without the key can begin a chain, or continue one that was closed.
func (c *committer) sign(ctx context.Context) {
	c.signed = c.write(ctx, nil, checkpoint) == nil && c.flush(ctx) == nil
	if c.signed && len(c.left) > 0 {
		c.backlog, c.left = append(c.backlog, c.left...), nil
		_ = c.write(ctx, nil, checkpoint) // it is logged
	}
}

// drain stores all entries that callers have passed, and closes the chain.
func (c *committer) drain(ctx context.Context) {
	for {
		select {
		case first := <-c.entries:
			c.commit(ctx, c.collect(first))
			continue
		default:
		}
		if !c.signed {
			if c.sign(ctx); !c.signed {
				return
			}
		}
		_ = c.flush(ctx)                                         // abandoned actions have their outcome in the backlog afterwards
		err := errors.Join(c.write(ctx, nil, end), c.flush(ctx)) // it is logged
		if err != nil || len(c.backlog) == 0 {
			return
		}
	}
}

// collect returns the entries that wait, in one batch.
func (c *committer) collect(first *entry) []*entry {
	batch, size := []*entry{first}, len(first.encoded)
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case e := <-c.entries:
			batch, size = append(batch, e), size+len(e.encoded)
		default:
			return batch
		}
	}
	return batch
}

// commit writes the entries of a batch for which the queue has space, and rejects the others.
func (c *committer) commit(ctx context.Context, batch []*entry) {
	if !c.signed {
		if c.sign(ctx); !c.signed {
			c.reject(batch, failureDisk, unavailable("The audit queue cannot be written.", nil))
			return
		}
	}
	space := c.config.MaxBytes - c.queue.writtenSize() - c.reserved.Load()
	var admitted, rejected []*entry
	for _, e := range batch {
		need := int64(len(e.encoded)) + overhead + e.reserve - e.release
		if e.release == 0 && need > space {
			rejected = append(rejected, e)
			continue
		}
		space -= need
		admitted = append(admitted, e)
	}
	c.reject(rejected, failureFull, unavailable("The audit queue is full because the audit sink is away.", nil))
	if len(admitted) == 0 {
		return
	}
	last := nothing
	if c.unsigned+len(admitted) >= checkpointRecords {
		last = checkpoint
	}
	if err := c.write(ctx, admitted, last); err != nil {
		c.reject(admitted, failureDisk, unavailable("The audit queue cannot be written.", err))
	}
}

// reject answers entries that are not stored. Outcomes are stored later, because their actions may have had their effect.
func (c *committer) reject(batch []*entry, cause string, err error) {
	for _, e := range batch {
		e.answer(err)
		if e.completes > 0 {
			c.later(e)
			continue
		}
		c.metrics.failures.WithLabelValues(cause).Inc()
	}
}

// later stores an outcome with the next write, and at the latest when a checkpoint is due.
func (c *committer) later(e *entry) {
	c.backlog = append(c.backlog, e)
	c.due.Reset(checkpointAfter)
}

// write writes the lines of the backlog, of a batch, and the last one.
func (c *committer) write(ctx context.Context, batch []*entry, last ending) error {
	if c.queue.full() {
		// Only the last segment may have lines that are not durable.
		if err := c.flush(ctx); err != nil {
			return err
		}
	}
	entries := append(c.backlog[:len(c.backlog):len(c.backlog)], batch...)
	if err := c.append(entries, last); err != nil {
		c.config.Logger.ErrorContext(ctx, "writing to the audit queue failed", errorAttribute(err))
		c.due.Reset(checkpointAfter)
		return err
	}
	c.backlog, c.unsynced = nil, append(c.unsynced, entries...)
	for _, e := range entries {
		c.reserved.Add(e.reserve)
		if e.completes > 0 {
			e.answer(nil)
		}
	}
	if c.unsigned == 0 && len(entries) > 0 {
		c.due.Reset(checkpointAfter)
	}
	if c.unsigned += len(entries); last != nothing {
		c.unsigned = 0
		c.due.Stop()
	}
	return nil
}

// append writes lines to the queue.
func (c *committer) append(entries []*entry, last ending) error {
	size := overhead
	for _, e := range entries {
		size += len(e.encoded) + overhead
	}
	buffer, at := make([]byte, 0, size), c.queue.written
	head := audit.Head{Writer: c.queue.writer, Time: time.Now(), Durable: c.queue.position().Sequence}
	for _, e := range entries {
		e.offset, e.sequence = at.Offset, at.Sequence+1
		buffer, at = audit.AppendRecord(buffer, head, at, audit.Entry{Record: e.encoded, Pending: e.pending, Completes: e.completes})
	}
	var err error
	switch last {
	case checkpoint:
		buffer, at, err = audit.AppendCheckpoint(buffer, head, at, c.config.Key)
	case end:
		buffer, at, err = audit.AppendEnd(buffer, head, at, c.config.Key)
	}
	if err != nil {
		return err
	}
	return c.queue.write(buffer, at)
}

// sync starts a sync if lines are not durable and none runs.
func (c *committer) sync() {
	if c.syncing || c.queue.written == c.queue.position() {
		return
	}
	c.syncing, c.covered, c.target = true, len(c.unsynced), c.queue.written
	file := c.queue.file
	go func() { c.synced <- c.config.sync(file) }()
}

// flush makes everything durable that is written.
func (c *committer) flush(ctx context.Context) error {
	var errs []error
	for c.sync(); c.syncing; c.sync() {
		errs = append(errs, c.finish(ctx, <-c.synced))
	}
	return errors.Join(errs...)
}

// finish handles the result of a sync. After a failed one, nothing that was written since the last successful one is durable.
func (c *committer) finish(ctx context.Context, err error) error {
	c.syncing = false
	if err != nil {
		c.config.Logger.ErrorContext(ctx, "writing to the audit queue failed", errorAttribute(err))
		if err := c.queue.discard(); err != nil {
			c.config.Logger.ErrorContext(ctx, "writing to the audit queue failed", errorAttribute(err))
		}
		lost := c.unsynced
		c.unsynced = nil
		for _, e := range lost {
			c.reserved.Add(-e.reserve)
		}
		c.reject(lost, failureDisk, unavailable("The audit queue cannot be written.", err))
		c.due.Reset(checkpointAfter)
		return err
	}
	c.queue.confirm(c.target)
	for _, e := range c.unsynced[:c.covered] {
		c.stored(e)
	}
	c.unsynced = append([]*entry(nil), c.unsynced[c.covered:]...)
	select {
	case c.durable <- struct{}{}:
	default:
	}
	return nil
}

// stored answers an entry that is durable.
func (c *committer) stored(e *entry) {
	c.metrics.records.Inc()
	switch {
	case e.completes > 0:
		c.reserved.Add(-e.release)
		c.queue.actionEnded(e.completes)
		return
	case e.pending:
		c.queue.actionBegan(e.sequence, e.offset)
	}
	if !e.answer(nil) {
		if outcome, err := unknownOutcome(e.encoded, e.sequence); err == nil { // it was encoded here
			c.later(outcome)
		}
	}
}
