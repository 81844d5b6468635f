// Package eventqueue holds the events that the backend has not finished processing: for each resource the newest report
// of Cluster Service and the running operations. It is also the queue of the resources to process.
//
// It is in memory only. After a crash the operations are listed again, and reports are watched again from the revision
// up to which everything was processed, which the queue computes. A resource is held only while an event or an
// operation is open, so the size is bounded.
//
// An OperationFinder finds running operations in Cosmos DB and adds them to the queue. A ReportFollower follows Cluster Service's watch and
// adds every report of an owned group. It stores the handled revision of each group with the group's lease, so that the next owner of the
// group continues from there and misses no report.
package eventqueue

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Resource identifies the resource of an operation by its ARM resource ID in lower case.
type Resource string

// Revocation is the kind of a revocation of credentials, which has no document of its own.
const Revocation database.Kind = "credentialRevocation"

// kinds maps resource types in lower case to kinds.
var kinds = map[string]database.Kind{
	strings.ToLower(hub.ClusterResourceType):         database.ClusterKind,
	strings.ToLower(hub.NodePoolResourceType):        database.NodePoolKind,
	strings.ToLower(hub.ExternalAuthResourceType):    database.ExternalAuthKind,
	strings.ToLower(database.CredentialResourceType): database.CredentialKind,
	strings.ToLower(database.RevocationResourceType): Revocation,
}

// ResourceOf returns the Resource with an ARM resource ID.
func ResourceOf(resourceID string) Resource { return Resource(strings.ToLower(resourceID)) }

// Kind returns the kind of the resource, or an empty string for a type that this release does not support.
func (r Resource) Kind() database.Kind {
	id, err := arm.ParseResourceID(string(r))
	if err != nil {
		return ""
	}
	return kinds[strings.ToLower(id.ResourceType.String())]
}

// Group returns the group of the resource's subscription.
func (r Resource) Group() controller.Group {
	key, err := database.ResourceKey(string(r))
	if err != nil {
		return 0
	}
	return controller.GroupOf(key.SubscriptionID)
}

// The pauses before a resource is processed again after an error.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// Queue holds events and queues their resources. It is safe for concurrent use.
type Queue struct {
	queue workqueue.TypedRateLimitingInterface[Resource]

	mu      sync.Mutex
	entries map[Resource]*entry
	// running has the operations in entries by ID.
	running map[string]runningOperation
	// received is the revision up to which Cluster Service has sent all reports.
	received int64
}

// runningOperation is an operation that may be running.
type runningOperation struct {
	resource Resource
	class    OperationClass
	started  time.Time
}

type entry struct {
	// report is the newest report. unhandled is the revision of the oldest report that was not acknowledged, or 0;
	// unhandledSince is when it arrived.
	report         *clusterservice.Report
	unhandled      int64
	unhandledSince time.Time
	// operations that may be running, by ID.
	operations map[string]database.Key
	// refreshRequests counts the requests to read the report since it was last read. stale is set if Cluster Service
	// may have lost the reported state.
	refreshRequests int
	stale           bool
}

// New returns an empty Queue.
func New() *Queue {
	return &Queue{
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[Resource](minBackoff, maxBackoff)),
		entries: map[Resource]*entry{},
		running: map[string]runningOperation{},
	}
}

func (q *Queue) entry(r Resource) *entry {
	e := q.entries[r]
	if e == nil {
		e = &entry{operations: map[string]database.Key{}}
		q.entries[r] = e
	}
	return e
}

// AddOperation stores a running operation and queues its resource.
func (q *Queue) AddOperation(operation *database.Item[database.OperationDocument]) {
	o := &operation.Value
	r, class := ResourceOf(o.ResourceID), ClassOf(o)
	q.mu.Lock()
	q.entry(r).operations[o.OperationID] = operation.Key
	q.running[o.OperationID] = runningOperation{r, class, o.StartTime}
	q.mu.Unlock()
	q.queue.Add(r)
}

// AddReport stores a report of the watch and queues its resource. A report that is older than the stored one only
// counts as unhandled.
func (q *Queue) AddReport(report *clusterservice.Report) {
	r := ResourceOf(report.ResourceID)
	q.mu.Lock()
	e := q.entry(r)
	if e.report == nil || e.report.Revision < report.Revision {
		e.report = report
	}
	if e.unhandled == 0 {
		e.unhandled, e.unhandledSince = report.Revision, time.Now()
	}
	q.mu.Unlock()
	q.queue.Add(r)
}

// UpdateReport stores a report from the response to a request, if it is newer than the stored one.
func (q *Queue) UpdateReport(r Resource, report *clusterservice.Report) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entry(r)
	if e.report == nil || e.report.Revision < report.Revision {
		e.report = report
	}
	if e.unhandledSince.IsZero() {
		e.unhandledSince = time.Now()
	}
}

// RequestRefresh requests that the report of a resource is read again, and queues the resource. It protects against a
// missed report.
func (q *Queue) RequestRefresh(r Resource) {
	q.mu.Lock()
	q.entry(r).refreshRequests++
	q.mu.Unlock()
	q.queue.Add(r)
}

// MarkStale requests a refresh because Cluster Service may have lost the reported state. Until the refresh is finished,
// nothing in the resource's group counts as handled: after a crash the next owner of the group lists the fleet and
// marks the resource again.
func (q *Queue) MarkStale(r Resource) {
	q.mu.Lock()
	e := q.entry(r)
	e.refreshRequests++
	e.stale = true
	q.mu.Unlock()
	q.queue.Add(r)
}

// FinishRefresh records that the report was read, and that a loss is stored. requests is Event.RefreshRequests; later
// requests remain open.
func (q *Queue) FinishRefresh(r Resource, requests int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[r]; e != nil && requests > 0 && e.refreshRequests == requests {
		e.refreshRequests, e.stale = 0, false
		q.removeIfIdle(r, e)
	}
}

// DiscardReport removes the report of a revision and any older one, because Cluster Service no longer has the resource.
func (q *Queue) DiscardReport(r Resource, revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[r]; e != nil && e.report != nil && e.report.Revision <= revision {
		e.report, e.unhandled, e.unhandledSince = nil, 0, time.Time{}
		q.removeIfIdle(r, e)
	}
}

// Event is the state of a resource that is being processed.
type Event struct {
	// Report is the newest report, or nil if there was none since the resource was last idle. It may already be
	// acknowledged.
	Report *clusterservice.Report
	// UnhandledSince is the arrival of the oldest report that was not acknowledged, or zero.
	UnhandledSince time.Time
	// Operations that may be running, by ID.
	Operations map[string]database.Key
	// RefreshRequests is the number of open requests to read the report, for FinishRefresh.
	RefreshRequests int
}

// Peek returns the event of a resource without removing it.
func (q *Queue) Peek(r Resource) Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[r]
	if e == nil {
		return Event{}
	}
	return Event{Report: e.report, UnhandledSince: e.unhandledSince, Operations: maps.Clone(e.operations), RefreshRequests: e.refreshRequests}
}

// Acknowledge records that all reports of a resource up to a revision are processed.
func (q *Queue) Acknowledge(r Resource, revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[r]
	if e == nil || e.report == nil || e.report.Revision > revision {
		// A newer report has arrived and is still unhandled.
		if e != nil && e.unhandled != 0 && e.report != nil {
			e.unhandled, e.unhandledSince = min(revision+1, e.report.Revision), time.Now()
		}
		return
	}
	e.unhandled, e.unhandledSince = 0, time.Time{}
	q.removeIfIdle(r, e)
}

// RemoveOperation records that an operation is terminal.
func (q *Queue) RemoveOperation(r Resource, id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[r]; e != nil {
		delete(e.operations, id)
		delete(q.running, id)
		q.removeIfIdle(r, e)
	}
}

// removeIfIdle removes a resource without open events. While an operation runs, the newest report is kept: it shows
// which generation Cluster Service has.
func (q *Queue) removeIfIdle(r Resource, e *entry) {
	if e.unhandled == 0 && len(e.operations) == 0 && e.refreshRequests == 0 {
		delete(q.entries, r)
	}
}

// DropGroup removes all resources of a group that this replica has lost.
func (q *Queue) DropGroup(group controller.Group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.entries, func(r Resource, _ *entry) bool { return r.Group() == group })
	maps.DeleteFunc(q.running, func(_ string, o runningOperation) bool { return o.resource.Group() == group })
}

// ResourceOfOperation returns the resource of a running operation. Reports of credentials and revocations contain only
// the operation ID. A report that arrives before its operation is not needed, because the request that follows returns
// the report.
func (q *Queue) ResourceOfOperation(id string) (Resource, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o, ok := q.running[id]
	return o.resource, ok
}

// AdvanceRevision records the revision up to which Cluster Service has sent all reports.
func (q *Queue) AdvanceRevision(revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.received = max(q.received, revision)
}

// ResetRevision records that the watch restarts after a revision, which may be an earlier one.
func (q *Queue) ResetRevision(revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.received = revision
}

// HandledRevisions returns the revision up to which everything is handled: behind for the groups with open reports,
// others for all other groups.
func (q *Queue) HandledRevisions() (behind map[controller.Group]int64, others int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	behind = map[controller.Group]int64{}
	for r, e := range q.entries {
		up := e.unhandled - 1
		switch {
		case e.stale:
			up = 0
		case e.unhandled == 0:
			continue
		}
		group := r.Group()
		if before, ok := behind[group]; !ok || up < before {
			behind[group] = up
		}
	}
	return behind, q.received
}

// Len returns the number of resources with open events or operations.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// Ready returns the number of resources that can be processed now.
func (q *Queue) Ready() int { return q.queue.Len() }

// Get waits for the next resource. The caller must call Done after processing it. shutdown is true after ShutDown.
func (q *Queue) Get() (r Resource, shutdown bool) { return q.queue.Get() }

// Done reports that a resource was processed. Until then, Get does not return the resource again.
func (q *Queue) Done(r Resource) { q.queue.Done(r) }

// AddAfter queues a resource after a pause.
func (q *Queue) AddAfter(r Resource, after time.Duration) { q.queue.AddAfter(r, after) }

// AddRateLimited queues a resource after a pause that grows with every call until Forget.
func (q *Queue) AddRateLimited(r Resource) { q.queue.AddRateLimited(r) }

// NumRequeues returns how often AddRateLimited was called since Forget.
func (q *Queue) NumRequeues(r Resource) int { return q.queue.NumRequeues(r) }

// RequeueAll queues every held resource, because the cause of their failures may be over.
func (q *Queue) RequeueAll() {
	q.mu.Lock()
	resources := slices.Collect(maps.Keys(q.entries))
	q.mu.Unlock()
	for _, r := range resources {
		q.queue.Add(r)
	}
}

// Forget resets the pauses of a resource.
func (q *Queue) Forget(r Resource) { q.queue.Forget(r) }

// ShutDown closes the queue: Next returns false.
func (q *Queue) ShutDown() { q.queue.ShutDown() }
