// Package reportqueue has the control planes about which a program must write a report to the management cluster.
package reportqueue

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The pauses before a failed report is written again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// Queue has the names of control planes, each once. It is safe for concurrent use.
type Queue struct {
	names workqueue.TypedRateLimitingInterface[string]
}

// New returns an empty Queue. The caller must call Run or ShutDown.
func New() *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	return &Queue{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// Add adds a control plane after a time. It does not block.
func (q *Queue) Add(controlPlane string, after time.Duration) { q.names.AddAfter(controlPlane, after) }

// ShutDown ends the queue. Run calls it.
func (q *Queue) ShutDown() { q.names.ShutDown() }

// Run writes the reports, one after the other, until ctx ends. It repeats a write that fails, and logs the failure, unless it is a conflict.
func (q *Queue) Run(ctx context.Context, log *slog.Logger, write func(ctx context.Context, controlPlane string) error) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		q.ShutDown()
	}()
	for {
		controlPlane, shutdown := q.names.Get()
		if shutdown {
			<-stopped
			return
		}
		err := write(ctx, controlPlane)
		switch {
		case err == nil:
			q.names.Forget(controlPlane)
		case ctx.Err() == nil:
			if !apierrors.IsConflict(err) {
				log.WarnContext(ctx, "writing a report about a control plane failed; retrying", logkey.ControlPlane, controlPlane, logkey.Error, err)
			}
			q.names.AddRateLimited(controlPlane)
		}
		q.names.Done(controlPlane)
	}
}
