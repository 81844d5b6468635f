package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// entry is a record on its way to the disk. Only the committer uses it before done is closed, except for state.
type entry struct {
	encoded []byte
	// pending is set for the beginning of an action, completes for an outcome: the number of the line of the beginning.
	pending   bool
	completes uint64
	// reserve is the number of bytes to reserve when a beginning is written, release the number to release when an outcome is durable.
	reserve, release int64
	// state is waiting, then answered by the committer or abandoned by its caller, whichever is first.
	state atomic.Int32
	// sequence and offset are the place of the line in the chain, once it is written.
	sequence uint64
	offset   int64
	// done is closed when the entry has its result err: for an outcome when it is written, else when it is durable.
	done chan struct{}
	err  error
}

func newEntry(encoded []byte) *entry { return &entry{encoded: encoded, done: make(chan struct{})} }

// The states of an entry.
const (
	waiting = iota
	answered
	// abandoned is the state of the beginning of an action whose outcome nobody will store.
	abandoned
)

// answer sets the result, once. It returns false if the entry is abandoned.
func (e *entry) answer(err error) bool {
	if e.state.CompareAndSwap(waiting, answered) {
		e.err = err
		close(e.done)
	}
	return e.state.Load() == answered
}

// reservation returns the number of bytes that the outcome of an action may need. It repeats the record of the beginning, and names the
// object more precisely.
func reservation(encoded []byte) int64 { return int64(2*len(encoded)) + 4*overhead }

// action implements audit.Action.
type action struct {
	writer *Writer
	begun  *entry
}

func (a *action) Durable(ctx context.Context) error { return a.writer.wait(ctx, a.begun) }

// End does not depend on the context of the request, which may have ended because of a timeout.
func (a *action) End(ctx context.Context, r audit.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := a.Durable(ctx); err != nil {
		if a.begun.state.CompareAndSwap(waiting, abandoned) {
			return err
		}
		if <-a.begun.done; a.begun.err != nil {
			return a.begun.err
		}
	}
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return err
	}
	e := newEntry(encoded)
	e.completes, e.release = a.begun.sequence, a.begun.reserve
	switch err = a.writer.enqueue(ctx, e); {
	case err == nil:
		err = a.writer.wait(ctx, e)
	case ctx.Err() != nil:
		// The disk does not respond. The chain will not have the outcome.
		a.writer.reserved.Add(-e.release)
		a.writer.queue.actionEnded(e.completes)
	}
	if e := apierror.As(err); e != nil {
		return apierror.New(e.Kind, "The request was executed, and its outcome could not be audited. Read the object before you repeat it.").
			WithReason(e.Reason).WithRetryAfter(e.RetryAfter).WithCause(err)
	}
	return nil
}

// endTimeout limits the wait for the disk after the request has ended.
const endTimeout = 10 * time.Second

// unknownOutcome returns the outcome of an action that nobody will end.
func unknownOutcome(begun []byte, sequence uint64) (*entry, error) {
	var r audit.Record
	if err := json.Unmarshal(begun, &r); err != nil {
		return nil, fmt.Errorf("decoding an audit record: %w", err)
	}
	r.Outcome = audit.Unknown
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	e := newEntry(encoded)
	e.completes, e.release = sequence, reservation(begun)
	return e, nil
}

// leftOpen returns the outcomes of the actions that an earlier process has left.
func leftOpen(open map[uint64]opened) ([]*entry, error) {
	var left []*entry
	for _, sequence := range slices.Sorted(maps.Keys(open)) {
		outcome, err := unknownOutcome(open[sequence].encoded, sequence)
		if err != nil {
			return nil, err
		}
		left = append(left, outcome)
	}
	return left, nil
}
