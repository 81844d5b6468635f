// Package cascade deletes all clusters of a Deleted subscription. The subscription's document shows that there is
// something to do, and the clusters' documents show the progress. It therefore continues after any interruption, and
// keeps only running deletions in memory.
//
// First it closes the subscription's fences, so that no cluster can be created. Then it repeatedly reads the first
// clusters in the order of their names, as many as may be deleted at a time, and starts the deletion of those that are
// not being deleted. Package lifecycle completes each deletion, which moves the next clusters to the front. Starting a
// deletion is a compare-and-swap of the cluster, so that each deletion has one operation, whoever started it. When no
// clusters are left, this is stored in the subscription's document, and the cascade ends.
package cascade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// workers is how many subscriptions are processed at a time.
	workers = 4
	// processTimeout bounds one processing of a subscription. The next one continues.
	processTimeout = time.Minute
	// recheckInterval is the longest time until a subscription is processed again.
	recheckInterval = 15 * time.Second
	// failedRetryInterval is the pause before the deletion of a cluster is started again after it failed.
	failedRetryInterval = 10 * time.Minute
	// pageSize is how many clusters are read at a time.
	pageSize = 100
)

// The pauses after processing a subscription failed.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Controller deletes the clusters of Deleted subscriptions in the owned groups. It is a controller.Handler.
type Controller struct {
	db   *database.DB
	owns func(controller.Group) bool
	// maxDeletions bounds the running deletions in all subscriptions of this replica together.
	maxDeletions int
	log          *slog.Logger
	started      prometheus.Counter
	queue        workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	emptying map[string]*progress
}

// progress is the progress of one subscription. The fields below the empty line are used only while the subscription is
// processed, by one worker at a time.
type progress struct {
	// running is how many deletions were running after the last processing; it is unknown during one. gone is how many
	// clusters have gone since then.
	running, gone int
	processing    bool

	fencesClosed bool
	// started maps the UIDs of clusters to when this process started their deletion, until they are gone.
	started map[string]time.Time
}

// New returns a Controller that keeps at most maxDeletions deletions running.
func New(db *database.DB, owns func(controller.Group) bool, maxDeletions int, metrics prometheus.Registerer, log *slog.Logger) *Controller {
	c := &Controller{
		db: db, owns: owns, maxDeletions: maxDeletions, log: log,
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "backend_cascade_deletions_total", Help: "Deletions of clusters that were started because their subscription is Deleted.",
		}),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff)),
		emptying: map[string]*progress{},
	}
	metrics.MustRegister(c.started, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "backend_cascade_subscriptions", Help: "Deleted subscriptions that have clusters left, on this replica.",
	}, func() float64 { return float64(c.subscriptions()) }))
	return c
}

// HandleChange queues a Deleted subscription, and handles a cluster that is gone from one or whose deletion has failed.
func (c *Controller) HandleChange(ctx context.Context, change database.Change) {
	switch {
	case change.Kind == database.SubscriptionKind && !change.Removed:
		item, err := database.DecodeChange(c.db.Subscriptions(), change)
		if err != nil {
			c.log.ErrorContext(ctx, "skipping a subscription that cannot be decoded", logkey.Key, change.Key.ResourceID, logkey.Error, err)
			return
		}
		if mustEmpty(item) {
			c.queue.Add(item.Key.SubscriptionID)
		}
	case change.Kind == database.ClusterKind && c.isEmptying(change.Key.SubscriptionID):
		item, err := database.DecodeChange(c.db.Clusters(), change)
		if err != nil {
			c.log.ErrorContext(ctx, "skipping a cluster that cannot be decoded", logkey.Key, change.Key.ResourceID, logkey.Error, err)
			return
		}
		// A failed deletion also makes room for others.
		if change.Removed || item.Value.ProvisioningState == hub.Failed {
			c.clusterGone(change.Key.SubscriptionID)
		}
	}
}

func (c *Controller) isEmptying(subscription string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.emptying[subscription] != nil
}

// clusterGone queues a subscription when half of its running deletions are done. This keeps deletions running without
// reading the clusters too often.
func (c *Controller) clusterGone(subscription string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.emptying[subscription]
	if p == nil {
		return
	}
	p.gone++
	if !p.processing {
		c.requeueIfHalfDone(subscription, p)
	}
}

func (c *Controller) requeueIfHalfDone(subscription string, p *progress) {
	if 2*p.gone >= p.running {
		p.gone, p.running = 0, max(0, p.running-p.gone)
		c.queue.Add(subscription)
	}
}

// Resync queues every Deleted subscription that may have clusters left.
func (c *Controller) Resync(ctx context.Context, _ bool) error {
	err := c.db.SubscriptionsToEmpty(ctx, func(item *database.Item[database.SubscriptionDocument]) error {
		if c.owns(controller.GroupOf(item.Key.SubscriptionID)) {
			c.queue.Add(item.Key.SubscriptionID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the deleted subscriptions: %w", err)
	}
	return nil
}

// Run processes subscriptions until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	controller.RunWorkers(ctx, c.queue, workers, c.process)
}

func (c *Controller) process(ctx context.Context, subscription string) {
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	if ctx.Err() != nil || !c.owns(controller.GroupOf(subscription)) {
		c.forget(subscription)
		return
	}
	err := c.empty(ctx, subscription)
	if err == nil {
		c.queue.Forget(subscription)
		return
	}
	if !errors.Is(err, context.Canceled) {
		c.log.WarnContext(ctx, "deleting the clusters of a subscription failed; retrying", logkey.SubscriptionID, subscription, logkey.Error, err)
	}
	c.queue.AddRateLimited(subscription)
}

// mustEmpty reports whether a subscription is Deleted and may have clusters left.
func mustEmpty(item *database.Item[database.SubscriptionDocument]) bool {
	return item != nil && item.Removed == nil && item.Value.Subscription.State == hub.Deleted && item.Value.EmptiedTime == nil
}

// empty does what can be done now for a subscription, and queues it again if clusters are left.
func (c *Controller) empty(ctx context.Context, subscription string) error {
	item, err := c.db.Subscriptions().Find(ctx, database.SubscriptionKey(subscription))
	if err != nil {
		return err
	}
	if !mustEmpty(item) {
		c.forget(subscription)
		return nil
	}
	p := c.progress(ctx, subscription)
	if !p.fencesClosed {
		if err := c.db.CloseFences(ctx, subscription); err != nil {
			return fmt.Errorf("closing the fences: %w", err)
		}
		p.fencesClosed = true
	}
	c.mu.Lock()
	p.gone, p.processing = 0, true
	c.mu.Unlock()
	running, left, err := c.startDeletions(ctx, subscription, p)
	c.mu.Lock()
	p.running, p.processing = running, false
	if p.gone > 0 {
		c.requeueIfHalfDone(subscription, p)
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if left {
		c.queue.AddAfter(subscription, recheckInterval)
		return nil
	}
	// If the document was changed since it was read, the commit fails and the next processing repeats this.
	now := time.Now().UTC()
	item.Value.EmptiedTime = &now
	batch := c.db.NewBatch(subscription)
	database.Replace(batch, item)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	c.forget(subscription)
	c.log.InfoContext(ctx, "deleted all clusters of a subscription", logkey.SubscriptionID, subscription)
	return nil
}

// startDeletions starts deletions of the first clusters of a subscription, up to its share. It returns how many are
// running and whether any clusters are left.
func (c *Controller) startDeletions(ctx context.Context, subscription string, p *progress) (running int, left bool, err error) {
	share := c.share()
	seen := map[string]time.Time{}
	for continuation := ""; ; {
		items, next, err := c.db.Clusters().List(ctx, subscription, "", continuation, min(pageSize, share))
		if err != nil {
			return running, true, err
		}
		for _, item := range items {
			left = true
			if running >= share {
				break
			}
			began := p.started[item.Value.UID]
			if item.Value.ProvisioningState != hub.Deleting {
				if !began.IsZero() && time.Since(began) < failedRetryInterval {
					// The deletion has failed. It is started again later; until then it does not count against the
					// share.
					seen[item.Value.UID] = began
					continue
				}
				if err := c.startDeletion(ctx, item); err != nil {
					return running, true, fmt.Errorf("starting the deletion of %s: %w", item.Key.ResourceID, err)
				}
				began = time.Now()
				p.started[item.Value.UID] = began
			}
			running++
			if !began.IsZero() {
				seen[item.Value.UID] = began
			}
		}
		if next == "" || running >= share {
			// Clusters that were not seen are gone.
			p.started = seen
			return running, left, nil
		}
		continuation = next
	}
}

// startDeletion starts the deletion of a cluster, unless another writer has, or the cluster is gone.
func (c *Controller) startDeletion(ctx context.Context, item *database.Item[database.ClusterDocument]) error {
	uid, key := item.Value.UID, item.Key
	return database.Retry(ctx, func(ctx context.Context) error {
		if item == nil {
			var err error
			if item, err = c.db.Clusters().Find(ctx, key); err != nil {
				return err
			}
			if item == nil || item.Removed != nil || item.Value.UID != uid || item.Value.ProvisioningState == hub.Deleting {
				return nil
			}
		}
		now := time.Now().UTC()
		operation := database.OperationDocument{
			OperationID: uuid.NewString(), Request: database.DeleteRequest, ResourceID: item.Value.Cluster.ID, ResourceType: hub.ClusterResourceType,
			UID: uid, Generation: item.Value.Generation, Location: item.Value.Cluster.Location, Status: hub.Deleting,
			StartTime: now, LastTransitionTime: now,
		}
		err := c.db.BeginClusterDeletion(ctx, item, operation)
		if err != nil {
			item = nil
			return err
		}
		c.started.Inc()
		return nil
	})
}

// share returns how many deletions a subscription may have running. maxDeletions is divided by the number of
// subscriptions, so that stuck clusters of one do not hold up the others.
func (c *Controller) share() int {
	return max(1, c.maxDeletions/max(1, c.subscriptions()))
}

func (c *Controller) subscriptions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.emptying)
}

func (c *Controller) progress(ctx context.Context, subscription string) *progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.emptying[subscription]
	if p == nil {
		p = &progress{started: map[string]time.Time{}}
		c.emptying[subscription] = p
		c.log.InfoContext(ctx, "deleting the clusters of a subscription", logkey.SubscriptionID, subscription)
	}
	return p
}

func (c *Controller) forget(subscription string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.emptying, subscription)
}
