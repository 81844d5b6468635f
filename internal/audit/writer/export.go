package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// maxChunk is the maximum number of bytes in one append to the sink.
	maxChunk = 1 << 20
	// firstRetry and lastRetry bound the pauses while the sink or the witness is away.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
	// appendTimeout limits one attempt.
	appendTimeout = 30 * time.Second
	// checkEvery is the time after which an idle writer compares the length of its log in the sink with what it has exported.
	checkEvery = time.Minute
	// lastTimeout limits the export at the end of the process.
	lastTimeout = 5 * time.Second
)

// exporter copies the queue to the sink, and checkpoints to the witness.
type exporter struct {
	*Writer
	// known is true once the length of the log in the sink is known. exported is that length.
	known    bool
	exported int64
	// checkpoint is a checkpoint that the sink has and the witness does not have yet.
	checkpoint []byte
	retry      *backoff.Backoff
	// failing is true after a failed attempt, until a successful one.
	failing bool
}

func newExporter(w *Writer) *exporter {
	return &exporter{Writer: w, retry: backoff.New(firstRetry, lastRetry)}
}

// run exports until ctx ends. It also checks the sink while nothing is to be exported: a line that somebody else appends is a conflict.
func (e *exporter) run(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		err := e.export(ctx)
		if ctx.Err() != nil {
			return
		}
		e.report(ctx, err)
		if err != nil {
			if e.retry.Wait(ctx) != nil {
				return
			}
			continue
		}
		e.retry.Reset()
		select {
		case <-ctx.Done():
			return
		case <-e.durable:
		case <-check.C:
			e.known = false
		}
	}
}

// last exports what the queue has, once.
func (e *exporter) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	e.report(ctx, e.export(ctx))
}

// report logs the first failure and the end of failures.
func (e *exporter) report(ctx context.Context, err error) {
	switch {
	case err != nil && !e.failing:
		e.metrics.failing.Set(1)
		e.config.Logger.ErrorContext(ctx, "exporting audit records failed; the queue grows", errorAttribute(err))
	case err == nil && e.failing:
		e.metrics.failing.Set(0)
		e.config.Logger.InfoContext(ctx, "audit records are exported again")
	}
	e.failing = err != nil
}

// export copies everything that is durable, then passes on the latest checkpoint.
func (e *exporter) export(ctx context.Context) error {
	for {
		more, err := e.step(ctx)
		if err != nil {
			e.metrics.exportFailures.WithLabelValues(failureSink).Inc()
			return err
		}
		if !more {
			break
		}
	}
	if e.checkpoint == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	if err := e.config.Witness.Put(ctx, e.queue.writer, e.checkpoint); err != nil {
		e.metrics.exportFailures.WithLabelValues(failureWitness).Inc()
		return fmt.Errorf("storing a checkpoint in the witness: %w", err)
	}
	e.checkpoint = nil
	return nil
}

// step copies one chunk. It returns false if nothing is left.
func (e *exporter) step(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	if !e.known {
		if err := e.locate(ctx); err != nil {
			return false, err
		}
	}
	chunk, err := e.queue.read(e.exported, maxChunk)
	if err != nil {
		return false, err
	}
	if len(chunk) == 0 {
		if e.exported < e.queue.position().Offset {
			return true, nil // the next segment
		}
		return false, nil
	}
	if e.exported+int64(len(chunk)) < e.queue.position().Offset {
		chunk = upToCheckpoint(chunk)
	}
	if err := e.config.Log.Append(ctx, e.queue.writer, e.exported, chunk); err != nil {
		e.known = false // a part may be stored
		return false, err
	}
	e.exported += int64(len(chunk))
	e.noteCheckpoint(chunk)
	return true, e.queue.release(e.exported)
}

// locate reads how much of the chain the sink has, and compares it with the part that the queue has. The sink must not have lost
// what the queue has deleted, nor have something that the writer has not written.
func (e *exporter) locate(ctx context.Context) error {
	size, err := e.config.Log.Size(ctx, e.queue.writer)
	if err != nil {
		return err
	}
	first, end := max(e.queue.begins(), e.exported), e.queue.position().Offset
	if size < first || size > end {
		e.metrics.conflict.Set(1)
		return fmt.Errorf("%w: it has %d bytes of %s, the writer has exported at least %d of %d", errConflict, size, e.queue.writer, first, end)
	}
	if err := e.compare(ctx, first, size); err != nil {
		return err
	}
	e.metrics.conflict.Set(0)
	e.known, e.exported = true, size
	return nil
}

// compare compares the bytes of the sink between two offsets with those of the queue.
func (e *exporter) compare(ctx context.Context, from, to int64) (err error) {
	if from == to {
		return nil
	}
	log, err := e.config.Log.Open(ctx, e.queue.writer, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for from < to {
		want, err := e.queue.read(from, int(min(to-from, maxChunk)))
		if err != nil {
			return err
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(log, got); err != nil {
			return fmt.Errorf("reading the audit sink: %w", err)
		}
		if !bytes.Equal(got, want) {
			e.metrics.conflict.Set(1)
			return fmt.Errorf("%w: the log of %s was changed after byte %d", errConflict, e.queue.writer, from)
		}
		from += int64(len(want))
	}
	return nil
}

// upToCheckpoint returns a chunk without the records after its last checkpoint; all of it if it has none. Until the sink has everything, what it
// has is confirmed, however old the records are.
func upToCheckpoint(chunk []byte) []byte {
	begin := bytes.LastIndex(chunk, []byte("\n"+checkpointPrefix)) + 1
	if length := bytes.IndexByte(chunk[begin:], '\n') + 1; begin > 0 && length > 0 {
		return chunk[:begin+length]
	}
	return chunk
}

// noteCheckpoint keeps the last checkpoint of a chunk. The first line of a chunk may be incomplete.
func (e *exporter) noteCheckpoint(chunk []byte) {
	for line := range bytes.Lines(chunk) {
		if bytes.HasPrefix(line, []byte(checkpointPrefix)) {
			e.checkpoint = bytes.Clone(line)
		}
	}
}

func errorAttribute(err error) slog.Attr { return slog.Any(logkey.Error, err) }
