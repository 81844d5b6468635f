package writer

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// Recorder stores records with a Writer. If the queue cannot be opened, because it is damaged or its disk is away, Append and Begin
// return an error and Run retries, so that the service does everything that needs no audit record. It is safe for concurrent use.
type Recorder struct {
	config   Config
	writer   atomic.Pointer[Writer]
	unusable prometheus.Gauge
}

// NewRecorder opens the queue of a Writer, or reports that it cannot. Run must be called afterwards.
func NewRecorder(ctx context.Context, config Config) *Recorder {
	r := &Recorder{config: config, unusable: prometheus.NewGauge(prometheus.GaugeOpts{Name: "audit_queue_unusable",
		Help: "1 if the audit queue cannot be opened, so that requests that must be audited are rejected, else 0."})}
	config.Metrics.MustRegister(r.unusable)
	if err := r.open(); err != nil {
		r.unusable.Set(1)
		config.Logger.ErrorContext(ctx, "opening the audit queue failed; requests that must be audited are rejected", errorAttribute(err))
	}
	return r
}

func (r *Recorder) open() error {
	w, err := Open(r.config)
	if err != nil {
		return err
	}
	r.writer.Store(w)
	return nil
}

// Run retries to open the queue, and then runs the Writer, until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	retry := backoff.New(firstRetry, lastRetry)
	for r.writer.Load() == nil {
		if retry.Wait(ctx) != nil {
			return
		}
		if r.open() == nil {
			r.unusable.Set(0)
			r.config.Logger.InfoContext(ctx, "the audit queue is open")
		}
	}
	r.writer.Load().Run(ctx)
}

// Append implements audit.Recorder.
func (r *Recorder) Append(ctx context.Context, record audit.Record) error {
	if w := r.writer.Load(); w != nil {
		return w.Append(ctx, record)
	}
	return unavailable("The audit queue cannot be opened.", nil)
}

// Begin implements audit.Recorder.
func (r *Recorder) Begin(ctx context.Context, record audit.Record) (audit.Action, error) {
	if w := r.writer.Load(); w != nil {
		return w.Begin(ctx, record)
	}
	return nil, unavailable("The audit queue cannot be opened.", nil)
}

var _ audit.Recorder = (*Recorder)(nil)
