// Package writer stores the audit records of one replica of a service: durably in a bounded queue on its disk, in the order of one
// chain, and from there in the sink.
//
// Run writes records to the queue's file as they arrive, and makes them durable with one fdatasync at a time: records that are written
// during one are durable with the next. Append waits for that. Begin does not wait; the request waits before its first effect, with
// Durable. End waits until the outcome is written to the file. When a Writer opens a queue of a process that ended with actions, it stores
// the outcome Unknown for each.
//
// Run exports what is durable to the sink in the background. While the sink is away the queue grows to its limit, and then Append and
// Begin return an error. Nothing is dropped. Run also signs a checkpoint after a number of records or a few seconds, and passes it to the
// witness once the sink has it. The last one closes the chain until the next start.
package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

const (
	// checkpointRecords and checkpointAfter are the numbers of records and the time after which a checkpoint is due.
	checkpointRecords = 256
	checkpointAfter   = 10 * time.Second
	// MaxUnconfirmed is the time after which the sink has the checkpoint of a record, unless the writer was killed or cannot export: the
	// time until the checkpoint is due, one failed attempt to export it, and the pause after that.
	MaxUnconfirmed = checkpointAfter + appendTimeout + lastRetry
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

	// sync makes the content of a file durable; nil is disk.SyncData.
	sync func(*os.File) error
}

// Writer is a Recorder. It is safe for concurrent use.
type Writer struct {
	config  Config
	queue   *queue
	metrics *metrics
	// entries wait for the next write.
	entries chan *entry
	// left are the outcomes of actions that an earlier process has left. Run stores them.
	left []*entry
	// durable is notified after a sync.
	durable chan struct{}
	// stopped is closed when Run has ended.
	stopped chan struct{}
	// reserved is the number of bytes for the outcomes of actions that have begun.
	reserved atomic.Int64
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
	w := &Writer{config: config, queue: q, entries: make(chan *entry, maxBatch), durable: make(chan struct{}, 1), stopped: make(chan struct{})}
	if w.config.sync == nil {
		w.config.sync = disk.SyncData
	}
	if w.left, err = leftOpen(q.open); err != nil {
		return nil, errors.Join(err, q.close())
	}
	for _, outcome := range w.left {
		w.reserved.Add(outcome.release)
	}
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
	e := newEntry(encoded)
	if err := w.enqueue(ctx, e); err != nil {
		return err
	}
	return w.wait(ctx, e)
}

// Begin implements audit.Recorder.
func (w *Writer) Begin(ctx context.Context, r audit.Record) (audit.Action, error) {
	r.Outcome = audit.Started
	encoded, err := audit.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	e := newEntry(encoded)
	e.pending, e.reserve = true, reservation(encoded)
	if err := w.enqueue(ctx, e); err != nil {
		return nil, err
	}
	return &action{w, e}, nil
}

// enqueue passes an entry to Run.
func (w *Writer) enqueue(ctx context.Context, e *entry) error {
	select {
	case w.entries <- e:
		return nil
	case <-ctx.Done():
		return unavailable("The audit record was not stored in time.", ctx.Err())
	case <-w.stopped:
		return unavailable("The service is stopping.", nil)
	}
}

// wait waits for the result of an entry.
func (w *Writer) wait(ctx context.Context, e *entry) error {
	var late error
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		late = unavailable("The audit record was not stored in time.", ctx.Err())
	case <-w.stopped:
		late = unavailable("The service is stopping.", nil)
	}
	select {
	case <-e.done: // at the same time
		return e.err
	default:
		return late
	}
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
	newCommitter(w).run(ctx)
	close(w.stopped)
	stop()
	<-exported
	exporter.last(context.WithoutCancel(ctx))
	if err := w.queue.close(); err != nil {
		w.config.Logger.WarnContext(ctx, "closing the audit queue failed", errorAttribute(err))
	}
}

var _ audit.Recorder = (*Writer)(nil)

// errConflict is the cause of an export that stops because the sink differs from what the writer has exported.
var errConflict = errors.New("the audit sink does not have what the writer exported")
