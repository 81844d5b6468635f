// Package notification sends ARM's notifications about ended operations (Azure-AsyncNotificationUri): one POST of the
// operation's status. It retries failures with growing pauses, for about six hours.
//
// Each attempt is stored on the operation before it is made, and its success afterwards. A crash in between repeats one
// notification, after its pause. When two replicas process one operation, only the one that stores the attempt makes
// it. asyncoperation.Policy limits the target and the duration.
package notification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// workers is how many notifications are sent at a time.
	workers = 8
	// maxAttempts is the number of attempts. With the default pauses they take about six hours.
	maxAttempts = 14
	// maxResponse is how many bytes of a response are read, so that the connection can be reused.
	maxResponse = 4 << 10
)

// Options configure the targets and the retries of notifications.
type Options struct {
	Policy asyncoperation.Policy
	// MinBackoff is the pause after the first attempt. Each further attempt doubles it, up to MaxBackoff. 0 means 15 s
	// and 1 h.
	MinBackoff, MaxBackoff time.Duration
}

func (o *Options) complete() {
	if o.MinBackoff == 0 {
		o.MinBackoff = 15 * time.Second
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = time.Hour
	}
}

// pause returns the pause after an attempt, counted from 1, without jitter.
func (o *Options) pause(attempt int) time.Duration {
	pause := o.MaxBackoff
	if doublings := attempt - 1; doublings < 30 {
		pause = min(o.MinBackoff<<doublings, o.MaxBackoff)
	}
	return pause
}

// Sender sends the notifications of the owned groups. It is a controller.Handler.
type Sender struct {
	db      *database.DB
	owns    func(controller.Group) bool
	options Options
	client  *http.Client
	log     *slog.Logger
	sent    *prometheus.CounterVec
	queue   workqueue.TypedRateLimitingInterface[database.Key]
}

// New returns a Sender.
func New(db *database.DB, owns func(controller.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Sender {
	options.complete()
	s := &Sender{
		db: db, owns: owns, options: options, client: options.Policy.Client(), log: log,
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_notifications_total", Help: "Attempts to notify about ended operations, by outcome: delivered, failed (will be retried) or abandoned.",
		}, []string{"outcome"}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[database.Key](50*time.Millisecond, 10*time.Second)),
	}
	metrics.MustRegister(s.sent)
	return s
}

// HandleChange queues an ended operation with an open notification.
func (s *Sender) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.OperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(s.db.Operations(), change)
	if err != nil {
		s.log.ErrorContext(ctx, "skipping an operation that cannot be decoded", logkey.Key, change.Key.ResourceID, logkey.Error, err)
		return
	}
	s.enqueue(operation)
}

// Resync queues all ended operations with an open notification.
func (s *Sender) Resync(ctx context.Context, _ bool) error {
	err := s.db.UnnotifiedOperations(ctx, func(operation *database.Item[database.OperationDocument]) error {
		if s.owns(controller.GroupOf(operation.Key.SubscriptionID)) {
			s.enqueue(operation)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the open notifications: %w", err)
	}
	return nil
}

// enqueue queues an operation for its next attempt.
func (s *Sender) enqueue(operation *database.Item[database.OperationDocument]) {
	if after, ok := due(&operation.Value, time.Now()); ok {
		// It is queued when the attempt is due: after the pause, or after a restart from here.
		s.queue.AddAfter(operation.Key, after)
	}
}

// due reports whether an operation has an open notification, and the time until its next attempt.
func due(operation *database.OperationDocument, now time.Time) (after time.Duration, ok bool) {
	if operation.NotificationURI == "" || !operation.Status.Terminal() {
		return 0, false
	}
	n := operation.Notification
	if n == nil {
		return 0, true
	}
	return max(0, n.NextAttempt.Sub(now)), n.EndTime == nil
}

// Run sends notifications until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	controller.RunWorkers(ctx, s.queue, workers, s.process)
}

func (s *Sender) process(ctx context.Context, key database.Key) {
	if ctx.Err() != nil || !s.owns(controller.GroupOf(key.SubscriptionID)) {
		return
	}
	err := database.Retry(ctx, func(ctx context.Context) error { return s.attempt(ctx, key) })
	if err == nil {
		s.queue.Forget(key)
		return
	}
	if !errors.Is(err, context.Canceled) {
		s.log.WarnContext(ctx, "storing the state of a notification failed; retrying", logkey.OperationID, path.Base(key.ResourceID), logkey.Error, err)
	}
	s.queue.AddRateLimited(key)
}

// attempt makes the next attempt if it is due. It returns errors of the store only, not of the notification.
func (s *Sender) attempt(ctx context.Context, key database.Key) error {
	operation, err := s.db.Operations().Find(ctx, key)
	if err != nil || operation == nil || operation.Removed != nil {
		return err
	}
	o := &operation.Value
	now := time.Now().UTC()
	after, ok := due(o, now)
	switch {
	case !ok:
		return nil
	case after > 0:
		s.queue.AddAfter(key, after)
		return nil
	case o.Notification == nil:
		o.Notification = &database.NotificationState{}
	}
	n := o.Notification
	if n.Attempts >= maxAttempts {
		// The last attempt was interrupted.
		return s.end(ctx, operation, false)
	}
	n.Attempts++
	pause := s.options.pause(n.Attempts)
	n.NextAttempt = now.Add(backoff.Jitter(pause))
	if err := s.write(ctx, operation); err != nil {
		return err
	}
	failure := s.post(ctx, o)
	switch {
	case failure == nil:
		return s.end(ctx, operation, true)
	case ctx.Err() != nil:
		// The process stops. The outcome of this attempt is unknown, and the next one is made when it is due.
		return nil
	case n.Attempts >= maxAttempts:
		s.log.WarnContext(ctx, "abandoned a notification", logkey.OperationID, o.OperationID, logkey.CorrelationID, o.CorrelationID, logkey.Attempt, n.Attempts, logkey.Error, failure)
		return s.end(ctx, operation, false)
	}
	s.sent.WithLabelValues("failed").Inc()
	s.log.InfoContext(ctx, "sending a notification failed; retrying", logkey.OperationID, o.OperationID, logkey.CorrelationID, o.CorrelationID,
		logkey.Attempt, n.Attempts, logkey.RetryIn, time.Until(n.NextAttempt).Round(time.Second).String(), logkey.Error, failure)
	s.queue.AddAfter(key, time.Until(n.NextAttempt))
	return nil
}

// end stores that the notification was delivered or abandoned.
func (s *Sender) end(ctx context.Context, operation *database.Item[database.OperationDocument], delivered bool) error {
	now := time.Now().UTC()
	operation.Value.Notification.EndTime, operation.Value.Notification.Delivered = &now, delivered
	if err := s.write(ctx, operation); err != nil {
		return err
	}
	outcome := "abandoned"
	if delivered {
		outcome = "delivered"
	}
	s.sent.WithLabelValues(outcome).Inc()
	return nil
}

func (s *Sender) write(ctx context.Context, operation *database.Item[database.OperationDocument]) error {
	batch := s.db.NewBatch(operation.Key.SubscriptionID)
	database.Replace(batch, operation)
	return batch.Commit(ctx)
}

// post sends the status once. It neither stores nor logs the response's content.
func (s *Sender) post(ctx context.Context, operation *database.OperationDocument) error {
	target, err := s.options.Policy.ParseURI(operation.NotificationURI)
	if err != nil {
		return fmt.Errorf("checking the notification URI: %w", err)
	}
	body, err := json.Marshal(asyncoperation.NewStatus(operation))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(armheader.CorrelationID, operation.CorrelationID)
	response, err := s.client.Do(request)
	if err != nil {
		return errors.Unwrap(err) // without the URI, whose query may contain a token
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse)
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("sending the notification: status %d", response.StatusCode)
	}
	return nil
}
