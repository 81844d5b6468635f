// Package cascade deletes the clusters of a subscription that is Deleted, however many there are: from the subscription's
// document it sees that there is something to do, from the clusters' how far that has come, so that it goes on wherever
// it was cut off, and keeps nothing in memory but what is under way.
//
// First the subscription's gates are shut, so that no cluster can be created any more. Then, turn by turn, it reads the
// first clusters in order of their names, as many as may be deleted at once, and begins the deletion of those where it
// has not begun: package lifecycle brings it to its end, and with that the next clusters to the front. Beginning is a
// compare-and-swap of the cluster, so that each is deleted by one operation, whoever began it. When there are no clusters
// left that is noted on the subscription, and the cascade is over.
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
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const (
	// workers is how many subscriptions have a turn at once.
	workers = 4
	// processTimeout bounds a turn; one that is cut off is taken up by the next.
	processTimeout = time.Minute
	// recheckInterval is when a subscription has its next turn if nothing is heard of its clusters.
	recheckInterval = 15 * time.Second
	// failedRetryInterval is how long a cluster is left alone whose deletion has failed.
	failedRetryInterval = 10 * time.Minute
	// pageSize is how many clusters are read at once.
	pageSize = 100
)

// Back-off of a subscription whose turn ended with an error.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Controller empties the deleted subscriptions of the owned groups. It is a changes.Seeker.
type Controller struct {
	db   *database.DB
	owns func(partition.Group) bool
	// maxDeletions deletions under way at once in the subscriptions of this replica together.
	maxDeletions int
	log          *slog.Logger
	started      prometheus.Counter
	queue        workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	emptying map[string]*progress
}

// progress is what is known of a subscription that is being emptied. Only its turn, of which there is never more than one
// at once, uses the fields below the line.
type progress struct {
	// underway is how many deletions were under way at the end of the last turn, gone how many clusters have gone since that
	// turn began. During a turn underway is not known.
	underway, gone int
	processing     bool

	fencesClosed bool
	// started is when this process began the deletion of a cluster that is not known to be gone, by uid.
	started map[string]time.Time
}

// New makes a Controller that has at most that many deletions under way at once.
func New(db *database.DB, owns func(partition.Group) bool, most int, metrics prometheus.Registerer, log *slog.Logger) *Controller {
	c := &Controller{
		db: db, owns: owns, maxDeletions: most, log: log,
		started: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "backend_cascade_deletions_total", Help: "Deletions of clusters begun because their subscription is Deleted.",
		}),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff)),
		emptying: map[string]*progress{},
	}
	metrics.MustRegister(c.started, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "backend_cascade_subscriptions", Help: "Deleted subscriptions whose clusters this replica is deleting.",
	}, func() float64 { return float64(c.subscriptions()) }))
	return c
}

// HandleChange notes a subscription that is Deleted, and a cluster that is gone from one or whose deletion has failed.
func (c *Controller) HandleChange(ctx context.Context, change database.Change) {
	switch {
	case change.Kind == database.SubscriptionKind && !change.Removed:
		item, err := database.DecodeChange(c.db.Subscriptions(), change)
		if err != nil {
			c.log.ErrorContext(ctx, "a subscription cannot be read", "key", change.Key.ResourceID, "error", err)
			return
		}
		if mustEmpty(item) {
			c.queue.Add(item.Key.SubscriptionID)
		}
	case change.Kind == database.ClusterKind && c.isEmptying(change.Key.SubscriptionID):
		item, err := database.DecodeChange(c.db.Clusters(), change)
		if err != nil {
			c.log.ErrorContext(ctx, "a cluster cannot be read", "key", change.Key.ResourceID, "error", err)
			return
		}
		// One whose deletion has failed makes room for others, too.
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

// clusterGone gives a subscription its next turn when half of the deletions that were under way are done: often enough to
// keep them coming, and rarely enough to make the reading of each turn worth it.
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
	if 2*p.gone >= p.underway {
		p.gone, p.underway = 0, max(0, p.underway-p.gone)
		c.queue.Add(subscription)
	}
}

// Resync notes every subscription that is Deleted and has not been emptied.
func (c *Controller) Resync(ctx context.Context, _ bool) error {
	err := c.db.SubscriptionsToEmpty(ctx, func(item *database.Item[database.SubscriptionDocument]) error {
		if c.owns(partition.Of(item.Key.SubscriptionID)) {
			c.queue.Add(item.Key.SubscriptionID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("looking for deleted subscriptions: %w", err)
	}
	return nil
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				subscription, shutdown := c.queue.Get()
				if shutdown {
					return
				}
				c.process(ctx, subscription)
				c.queue.Done(subscription)
			}
		})
	}
	wg.Wait()
}

func (c *Controller) process(ctx context.Context, subscription string) {
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	if ctx.Err() != nil || !c.owns(partition.Of(subscription)) {
		c.forget(subscription)
		return
	}
	err := c.empty(ctx, subscription)
	if err == nil {
		c.queue.Forget(subscription)
		return
	}
	if !errors.Is(err, context.Canceled) {
		c.log.WarnContext(ctx, "deleting the clusters of a deleted subscription; will go on", "subscriptionId", subscription, "error", err)
	}
	c.queue.AddRateLimited(subscription)
}

// mustEmpty reports whether a subscription is to be emptied.
func mustEmpty(item *database.Item[database.SubscriptionDocument]) bool {
	return item != nil && item.Removed == nil && item.Value.Subscription.State == hub.Deleted && item.Value.EmptiedTime == nil
}

// empty does what can be done now for a subscription, and has it come again if that is not all.
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
			return fmt.Errorf("shutting the gates: %w", err)
		}
		p.fencesClosed = true
	}
	c.mu.Lock()
	p.gone, p.processing = 0, true
	c.mu.Unlock()
	underway, left, err := c.startDeletions(ctx, subscription, p)
	c.mu.Lock()
	p.underway, p.processing = underway, false
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
	// The document may have been written again since it was read; then the next turn comes to the same end.
	now := time.Now().UTC()
	item.Value.EmptiedTime = &now
	batch := c.db.NewBatch(subscription)
	database.Replace(batch, item)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	c.forget(subscription)
	c.log.InfoContext(ctx, "the deleted subscription has no clusters left", "subscriptionId", subscription)
	return nil
}

// startDeletions begins the deletion of the first clusters of a subscription, as far as it is its turn. It returns how
// many are under way, and whether any clusters are left.
func (c *Controller) startDeletions(ctx context.Context, subscription string, p *progress) (underway int, left bool, err error) {
	share := c.share()
	seen := map[string]time.Time{}
	for continuation := ""; ; {
		items, next, err := c.db.Clusters().List(ctx, subscription, "", continuation, min(pageSize, share))
		if err != nil {
			return underway, true, err
		}
		for _, item := range items {
			left = true
			if underway >= share {
				break
			}
			began := p.started[item.Value.UID]
			if item.Value.ProvisioningState != hub.Deleting {
				if !began.IsZero() && time.Since(began) < failedRetryInterval {
					// Its deletion has failed. It is tried again, but must not take the others' place until then.
					seen[item.Value.UID] = began
					continue
				}
				if err := c.startDeletion(ctx, item); err != nil {
					return underway, true, fmt.Errorf("beginning the deletion of %s: %w", item.Key.ResourceID, err)
				}
				began = time.Now()
				p.started[item.Value.UID] = began
			}
			underway++
			if !began.IsZero() {
				seen[item.Value.UID] = began
			}
		}
		if next == "" || underway >= share {
			// What has not been seen is gone.
			p.started = seen
			return underway, left, nil
		}
		continuation = next
	}
}

// startDeletion begins the deletion of a cluster, unless somebody else has, or it is gone.
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

// share is how many deletions a subscription may have under way: what there may be divided by those that are being
// emptied, so that one whose clusters are stuck does not hold up the others.
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
		c.log.InfoContext(ctx, "deleting the clusters of a deleted subscription", "subscriptionId", subscription)
	}
	return p
}

func (c *Controller) forget(subscription string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.emptying, subscription)
}
