// Package notification tells those who asked for it (Azure-AsyncNotificationUri) that an operation has ended: one POST of
// the operation's status, made again while it fails, ever more rarely, for some hours.
//
// Each attempt is noted on the operation before it is made, and that one was answered afterwards. A crash in between can
// therefore repeat one notification, after its pause, but never many at once; and replicas that work on one operation for
// a moment race for the note, so that one of them makes the attempt. Whom it may speak to, and how long, is
// asyncoperation.Policy's.
package notification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const (
	// workers is how many notifications are under way at once.
	workers = 8
	// maxAttempts is how often one is tried: with the pauses below, over about eight hours.
	maxAttempts = 14
	// maxResponse is how much of an answer is read, only for the connection to be used again.
	maxResponse = 4 << 10
)

// Options say where notifications may go, and when they are tried again.
type Options struct {
	Policy asyncoperation.Policy
	// MinBackoff is the pause after the first attempt; each one doubles it, up to Most. 0 means 15 s and 1 h.
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

// pause is the time between an attempt, counted from 1, and the next.
func (o *Options) pause(attempt int) time.Duration {
	pause := o.MaxBackoff
	if doublings := attempt - 1; doublings < 30 {
		pause = min(o.MinBackoff<<doublings, o.MaxBackoff)
	}
	return pause
}

// Sender sends the notifications of the owned groups. It is a changes.Seeker.
type Sender struct {
	db      *database.DB
	owns    func(partition.Group) bool
	options Options
	client  *http.Client
	log     *slog.Logger
	sent    *prometheus.CounterVec
	queue   workqueue.TypedRateLimitingInterface[database.Key]
}

// New makes a Sender.
func New(db *database.DB, owns func(partition.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Sender {
	options.complete()
	s := &Sender{
		db: db, owns: owns, options: options, client: options.Policy.Client(), log: log,
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_notifications_total", Help: "Notifications of ended operations by outcome: delivered, failed (one attempt of several) or abandoned (the last).",
		}, []string{"outcome"}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[database.Key](50*time.Millisecond, 10*time.Second)),
	}
	metrics.MustRegister(s.sent)
	return s
}

// HandleChange notes an operation whose end somebody is to be told.
func (s *Sender) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.OperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(s.db.Operations(), change)
	if err != nil {
		s.log.ErrorContext(ctx, "an operation cannot be read", "key", change.Key.ResourceID, "error", err)
		return
	}
	s.enqueue(operation)
}

// Resync notes all that have not been told.
func (s *Sender) Resync(ctx context.Context, _ bool) error {
	err := s.db.UnnotifiedOperations(ctx, func(operation *database.Item[database.OperationDocument]) error {
		if s.owns(partition.Of(operation.Key.SubscriptionID)) {
			s.enqueue(operation)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking for ended operations to be notified: %w", err)
	}
	return nil
}

// enqueue queues an operation for when its next attempt is due.
func (s *Sender) enqueue(operation *database.Item[database.OperationDocument]) {
	if after, ok := due(&operation.Value, time.Now()); ok {
		// Before it is due it needs no place in the queue: its turn comes from the pause after its last attempt, or, after a
		// restart, from here.
		s.queue.AddAfter(operation.Key, after)
	}
}

// due reports whether an operation's end is to be told, and when.
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

// Run works until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	defer s.client.CloseIdleConnections()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, shutdown := s.queue.Get()
				if shutdown {
					return
				}
				s.process(ctx, key)
				s.queue.Done(key)
			}
		})
	}
	wg.Wait()
}

func (s *Sender) process(ctx context.Context, key database.Key) {
	if ctx.Err() != nil || !s.owns(partition.Of(key.SubscriptionID)) {
		return
	}
	err := database.Retry(ctx, func(ctx context.Context) error { return s.attempt(ctx, key) })
	if err == nil {
		s.queue.Forget(key)
		return
	}
	if !errors.Is(err, context.Canceled) {
		s.log.WarnContext(ctx, "the state of a notification could not be kept; will go on", "operation", key.ResourceID, "error", err)
	}
	s.queue.AddRateLimited(key)
}

// attempt makes the next attempt if it is due. Its error is about the store; a notification that fails is not one.
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
		// It was on its last attempt when it was cut off.
		return s.end(ctx, operation, false)
	}
	n.Attempts++
	pause := s.options.pause(n.Attempts)
	n.NextAttempt = now.Add(pause/2 + rand.N(pause))
	if err := s.write(ctx, operation); err != nil {
		return err
	}
	failure := s.post(ctx, o)
	switch {
	case failure == nil:
		return s.end(ctx, operation, true)
	case ctx.Err() != nil:
		// The process ends. Nothing is known of this attempt, and the next is made when it is due.
		return nil
	case n.Attempts >= maxAttempts:
		s.log.WarnContext(ctx, "gave up on a notification", "operationId", o.OperationID, "correlationId", o.CorrelationID, "attempts", n.Attempts, "error", failure)
		return s.end(ctx, operation, false)
	}
	s.sent.WithLabelValues("failed").Inc()
	s.log.InfoContext(ctx, "a notification failed; will try again", "operationId", o.OperationID, "correlationId", o.CorrelationID,
		"attempt", n.Attempts, "next", n.NextAttempt, "error", failure)
	s.queue.AddAfter(key, time.Until(n.NextAttempt))
	return nil
}

// end notes that nothing more is to be done.
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

// post sends the status once. What the answer holds is of no interest, and none of it is kept or logged.
func (s *Sender) post(ctx context.Context, operation *database.OperationDocument) error {
	target, err := s.options.Policy.ParseURI(operation.NotificationURI)
	if err != nil {
		return fmt.Errorf("the notification URI is not allowed: %w", err)
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
		return errors.Unwrap(err) // without the URI, whose query may hold a token
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse)
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("it was answered with status %d", response.StatusCode)
	}
	return nil
}
