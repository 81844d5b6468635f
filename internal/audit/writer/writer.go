// Package writer stores the audit records of one replica of a service: durably in a bounded queue on its disk, in the order of one
// chain, and from there in the sink.
//
// Append returns after the record is on the disk. Records of concurrent calls share one write and one fsync. Run exports the queue to
// the sink in the background; while the sink is away the queue grows to its limit, and then Append and Begin return an error. Nothing
// is dropped. Run also signs a checkpoint after a number of records or a few seconds, and passes it to the witness once the sink
// has it.
package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

const (
	// checkpointRecords and checkpointAfter are the numbers of records and the time after which a checkpoint is due.
	checkpointRecords = 256
	checkpointAfter   = 10 * time.Second
	// maxBatch is the maximum number of records, and maxBatchBytes the approximate number of bytes, in one write.
	maxBatch      = 256
	maxBatchBytes = 512 << 10
	// overhead is an upper bound of the bytes of a line besides its record.
	overhead = 512
	// segments is the number of segments in a queue that is full.
	segments = 16
	// MinBytes is the smallest limit of a queue.
	MinBytes = 64 << 10
	// DefaultBytes is the limit of a queue by default: about 80,000 records.
	DefaultBytes = 64 << 20
)

// ReasonUnavailable is the reason of the errors of Append and Begin.
const ReasonUnavailable = "AUDIT_UNAVAILABLE"

// Config holds the settings of a Writer.
type Config struct {
	// Dir is the folder of the queue. No two writers may have the same.
	Dir string
	// Service is the name of the service, the beginning of the writer's name.
	Service string
	// Key signs checkpoints.
	Key *audit.SigningKey
	// Log is the sink, Witness keeps the latest checkpoint.
	Log     sink.Log
	Witness sink.Witness
	// MaxBytes is the limit of the queue on the disk, at least MinBytes; 0 is DefaultBytes.
	MaxBytes int64
	Logger   *slog.Logger
	Metrics  prometheus.Registerer
}

// Writer is a Recorder. It is safe for concurrent use.
type Writer struct {
	config  Config
	queue   *queue
	metrics *metrics
	// records are the records that wait for the next write.
	records chan *record
	// durable is notified after a write.
	durable chan struct{}
	// stopped is closed when Run has ended.
	stopped chan struct{}
	// reserved is the number of bytes for the outcomes of actions that have begun.
	reserved atomic.Int64
}

// record is a record that waits for the next write.
type record struct {
	encoded []byte
	// reserve is the number of bytes to reserve if the record is stored, release the number of reserved bytes to release.
	reserve, release int64
	// settled is set by the caller when it stops waiting, or by Run before it sends the result to done, whichever is first.
	settled atomic.Bool
	done    chan error
}

// Open opens or creates the queue of a writer. Run must be called afterwards.
func Open(config Config) (*Writer, error) {
	if config.MaxBytes == 0 {
		config.MaxBytes = DefaultBytes
	}
	if config.MaxBytes < MinBytes {
		return nil, fmt.Errorf("the limit of the audit queue is %d bytes: it must be at least %d", config.MaxBytes, MinBytes)
	}
	q, err := openQueue(config.Dir, config.Service, config.MaxBytes/segments)
	if err != nil {
		return nil, err
	}
	w := &Writer{config: config, queue: q, records: make(chan *record, maxBatch), durable: make(chan struct{}, 1), stopped: make(chan struct{})}
	w.metrics = newMetrics(config.Metrics, w)
	return w, nil
}

// Name returns the name of the writer.
func (w *Writer) Name() string { return w.queue.writer }

// Append implements audit.Recorder.
func (w *Writer) Append(ctx context.Context, r audit.Record) error {
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return err
	}
	return w.enqueue(ctx, &record{encoded: encoded, done: make(chan error, 1)})
}

// Begin implements audit.Recorder.
func (w *Writer) Begin(ctx context.Context, r audit.Record) (audit.Action, error) {
	r.Outcome = audit.Started
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	// The record with the outcome repeats the record, and names the object more precisely.
	reserve := int64(2*len(encoded)) + 4*overhead
	if err := w.enqueue(ctx, &record{encoded: encoded, reserve: reserve, done: make(chan error, 1)}); err != nil {
		return nil, err
	}
	return &action{w, reserve}, nil
}

type action struct {
	writer   *Writer
	reserved int64
}

// End implements audit.Action. It does not depend on the context of the request, which may have ended because of a timeout.
func (a *action) End(ctx context.Context, r audit.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return err
	}
	err = a.writer.enqueue(ctx, &record{encoded: encoded, release: a.reserved, done: make(chan error, 1)})
	if e := apierror.As(err); e != nil {
		return apierror.New(e.Kind, "The request was executed, and its outcome could not be audited. Read the object before you repeat it.").
			WithReason(e.Reason).WithRetryAfter(e.RetryAfter).WithCause(err)
	}
	return nil
}

// endTimeout limits the wait for the disk after the request has ended.
const endTimeout = 10 * time.Second

// enqueue passes a record to Run and waits until it is stored.
func (w *Writer) enqueue(ctx context.Context, r *record) error {
	select {
	case w.records <- r:
	case <-ctx.Done():
		w.reserved.Add(-r.release)
		return unavailable("The audit record was not stored in time.", ctx.Err())
	case <-w.stopped:
		return unavailable("The service is stopping.", nil)
	}
	var late error
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		late = unavailable("The audit record was not stored in time.", ctx.Err())
	case <-w.stopped:
		late = unavailable("The service is stopping.", nil)
	}
	if r.settled.CompareAndSwap(false, true) {
		return late
	}
	return <-r.done
}

// retryAfter is the pause after which a caller should repeat a request whose record was not stored.
const retryAfter = 30 * time.Second

func unavailable(message string, cause error) error {
	return apierror.New(apierror.Unavailable, "The request was rejected because it cannot be audited: %s", message).
		WithReason(ReasonUnavailable).WithRetryAfter(retryAfter).WithCause(cause)
}

// Run stores and exports records until ctx ends. Then it stores the last checkpoint, exports once more for at most a few seconds, and
// closes the queue. What is not exported stays in the queue for the next start.
func (w *Writer) Run(ctx context.Context) {
	exporter := newExporter(w)
	exported := make(chan struct{})
	exporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(exported)
		exporter.run(exporting)
	}()
	w.commit(ctx)
	close(w.stopped)
	stop()
	<-exported
	exporter.last(context.WithoutCancel(ctx))
	if err := w.queue.close(); err != nil {
		w.config.Logger.WarnContext(ctx, "closing the audit queue failed", errorAttribute(err))
	}
}

// commit writes records in batches until ctx ends. It begins and ends with a checkpoint.
func (w *Writer) commit(ctx context.Context) {
	// A chain begins with a checkpoint, so that nobody without the key can begin one. A failed write is tried again.
	signed := w.write(ctx, nil, true) == nil
	unsigned := 0
	due := time.NewTimer(checkpointAfter)
	due.Stop()
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			w.drain(ctx)
			return
		case <-due.C:
			if w.write(ctx, nil, true) == nil {
				unsigned = 0
			} else {
				due.Reset(checkpointAfter)
			}
		case first := <-w.records:
			batch := w.collect(first)
			if !signed {
				if signed = w.write(ctx, nil, true) == nil; !signed {
					w.rejectUnsigned(batch)
					continue
				}
			}
			stored := w.admit(ctx, batch)
			if unsigned == 0 && stored > 0 {
				due.Reset(checkpointAfter)
			}
			if unsigned += stored; unsigned >= checkpointRecords && w.write(ctx, nil, true) == nil {
				unsigned = 0
				due.Stop()
			}
		}
	}
}

// rejectUnsigned answers records that arrive while the first checkpoint cannot be written.
func (w *Writer) rejectUnsigned(batch []*record) {
	w.metrics.failures.WithLabelValues(failureDisk).Add(float64(len(batch)))
	w.answer(batch, unavailable("The audit queue cannot be written.", nil))
}

// drain answers all records that callers have passed, and writes the last checkpoint.
func (w *Writer) drain(ctx context.Context) {
	for {
		select {
		case first := <-w.records:
			w.admit(ctx, w.collect(first))
		default:
			_ = w.write(ctx, nil, true) // it is logged
			return
		}
	}
}

// collect returns the records that wait, in one batch.
func (w *Writer) collect(first *record) []*record {
	batch, size := []*record{first}, len(first.encoded)
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case r := <-w.records:
			batch, size = append(batch, r), size+len(r.encoded)
		default:
			return batch
		}
	}
	return batch
}

// admit writes the records of a batch for which the queue has space, and answers all. It returns the number of stored records.
func (w *Writer) admit(ctx context.Context, batch []*record) int {
	space := w.config.MaxBytes - w.queue.size() - w.reserved.Load()
	var admitted, rejected []*record
	for _, r := range batch {
		need := int64(len(r.encoded)) + overhead + r.reserve - r.release
		if r.release == 0 && need > space {
			rejected = append(rejected, r)
			continue
		}
		space -= need
		admitted = append(admitted, r)
	}
	if len(rejected) > 0 {
		w.metrics.failures.WithLabelValues(failureFull).Add(float64(len(rejected)))
		w.answer(rejected, unavailable("The audit queue is full because the audit sink is away.", nil))
	}
	if len(admitted) == 0 {
		return 0
	}
	err := w.write(ctx, admitted, false)
	if err != nil {
		w.metrics.failures.WithLabelValues(failureDisk).Add(float64(len(admitted)))
		w.answer(admitted, unavailable("The audit queue cannot be written.", err))
		return 0
	}
	w.metrics.records.Add(float64(len(admitted)))
	w.answer(admitted, nil)
	return len(admitted)
}

// answer passes the result of a write to the callers. An action that ends gives its reservation back, whether its outcome was stored
// or not. An action that begins gets its reservation, unless its caller does not wait any more.
func (w *Writer) answer(batch []*record, err error) {
	for _, r := range batch {
		w.reserved.Add(-r.release)
		if !r.settled.CompareAndSwap(false, true) {
			continue
		}
		if err == nil {
			w.reserved.Add(r.reserve)
		}
		r.done <- err
	}
}

// write appends the lines of records, and of a checkpoint if wanted, to the queue.
func (w *Writer) write(ctx context.Context, batch []*record, checkpoint bool) error {
	now, at := time.Now(), w.queue.position()
	size := overhead
	for _, r := range batch {
		size += len(r.encoded) + overhead
	}
	buffer := make([]byte, 0, size)
	for _, r := range batch {
		buffer, at = audit.AppendRecord(buffer, w.queue.writer, at, now, r.encoded)
	}
	var err error
	if checkpoint {
		if buffer, at, err = audit.AppendCheckpoint(buffer, w.queue.writer, at, now, w.config.Key); err != nil {
			return err
		}
	}
	if err = w.queue.append(buffer, at); err != nil {
		w.config.Logger.ErrorContext(ctx, "writing to the audit queue failed", errorAttribute(err))
		return err
	}
	select {
	case w.durable <- struct{}{}:
	default:
	}
	return nil
}

var _ audit.Recorder = (*Writer)(nil)

// errConflict is the cause of an export that stops because the sink differs from what the writer has exported.
var errConflict = errors.New("the audit sink does not have what the writer exported")
