package refusals

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// Start runs the audit of a service that records only refusals, and returns its Aggregator. stop stores the last counts and waits until
// the audit has ended; it must be called after the last refusal. The end of ctx does not end the audit.
func Start(ctx context.Context, options *writer.Options, service string, log *slog.Logger, metrics prometheus.Registerer) (a *Aggregator, stop func(), err error) {
	records, err := options.Recorder(ctx, service, log, metrics)
	if err != nil {
		return nil, nil, err
	}
	a = New(records)
	recording, stopRecords := context.WithCancel(context.WithoutCancel(ctx))
	counting, stopCounting := context.WithCancel(context.WithoutCancel(ctx))
	var recorded, counted sync.WaitGroup
	recorded.Go(func() { records.Run(recording) })
	counted.Go(func() { a.Run(counting) })
	return a, func() {
		stopCounting()
		counted.Wait()
		// The writer ends after everything that it records.
		stopRecords()
		recorded.Wait()
	}, nil
}
