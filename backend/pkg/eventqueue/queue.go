// Package inbox holds what the backend has heard and not yet dealt with: for each resource the newest report of Cluster
// Service and the operations that are under way, and the queue of resources that somebody must look at.
//
// It is memory only. What it loses in a crash comes again: operations by listing them, reports by watching again from
// the revision up to which everything has been dealt with, which the inbox computes. It holds resources only while
// something is under way with them, so its size is bounded by that.
package eventqueue

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Resource names what an operation works on, by its ARM id in lower case.
type Resource string

// Revocation is the kind of a revocation of credentials, which has no document of its own.
const Revocation database.Kind = "credentialRevocation"

// childKinds are the kinds of what stands beneath a cluster, by the word in its ARM id.
var childKinds = map[string]database.Kind{
	"nodepools": database.NodePoolKind, "externalauths": database.ExternalAuthKind,
	"admincredentials": database.CredentialKind, "credentialrevocations": Revocation,
}

// ResourceOf is the name of the resource with that ARM id.
func ResourceOf(resourceID string) Resource { return Resource(strings.ToLower(resourceID)) }

// Kind is the kind of the resource; empty for an id of a type that this release does not know.
func (r Resource) Kind() database.Kind {
	parts := strings.Split(string(r), "/")
	switch {
	case len(parts) == 9 && parts[7] == "hcpopenshiftclusters":
		return database.ClusterKind
	case len(parts) == 11 && parts[7] == "hcpopenshiftclusters":
		return childKinds[parts[9]]
	}
	return ""
}

// Group is the group of the resource's subscription.
func (r Resource) Group() partition.Group {
	parts := strings.SplitN(string(r), "/", 4)
	if len(parts) < 3 {
		return 0
	}
	return partition.Of(parts[2])
}

// Back-off of a resource whose turn ended with an error.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// Queue is safe for concurrent use.
type Queue struct {
	queue workqueue.TypedRateLimitingInterface[Resource]

	mu      sync.Mutex
	entries map[Resource]*entry
	// resourceByOperation are the resources of the operations in entries, by the operation's id.
	resourceByOperation map[string]Resource
	// received is the revision up to which Cluster Service has sent everything.
	received int64
}

type entry struct {
	// report is the newest; unhandled is the revision of the oldest that has not been dealt with, 0 for none, and
	// waiting since when that is so.
	report         *clusterservice.Report
	unhandled      int64
	unhandledSince time.Time
	// operations that are not known to be terminal, by id.
	operations map[string]database.Key
	// refreshRequests counts how often the report was to be asked for again since it was; doubted is set when that is because what was
	// known may have been lost where it came from.
	refreshRequests int
	stale           bool
}

// New makes an empty inbox.
func New() *Queue {
	return &Queue{
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[Resource](minBackoff, maxBackoff)),
		entries:             map[Resource]*entry{},
		resourceByOperation: map[string]Resource{},
	}
}

func (i *Queue) entry(r Resource) *entry {
	e := i.entries[r]
	if e == nil {
		e = &entry{operations: map[string]database.Key{}}
		i.entries[r] = e
	}
	return e
}

// AddOperation notes an operation that is under way, and queues its resource.
func (i *Queue) AddOperation(r Resource, id string, key database.Key) {
	i.mu.Lock()
	i.entry(r).operations[id] = key
	i.resourceByOperation[id] = r
	i.mu.Unlock()
	i.queue.Add(r)
}

// AddReport notes a report of the watch, and queues its resource. An older one than is known only counts as unhandled.
func (i *Queue) AddReport(report *clusterservice.Report) {
	r := ResourceOf(report.ResourceID)
	i.mu.Lock()
	e := i.entry(r)
	if e.report == nil || e.report.Revision < report.Revision {
		e.report = report
	}
	if e.unhandled == 0 {
		e.unhandled, e.unhandledSince = report.Revision, time.Now()
	}
	i.mu.Unlock()
	i.queue.Add(r)
}

// UpdateReport notes a report that Cluster Service gave as an answer, if it is news.
func (i *Queue) UpdateReport(r Resource, report *clusterservice.Report) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.entry(r)
	if e.report == nil || e.report.Revision < report.Revision {
		e.report = report
	}
	if e.unhandledSince.IsZero() {
		e.unhandledSince = time.Now()
	}
}

// RequestRefresh has the report of a resource asked for again: the safety net under the watch.
func (i *Queue) RequestRefresh(r Resource) {
	i.mu.Lock()
	i.entry(r).refreshRequests++
	i.mu.Unlock()
	i.queue.Add(r)
}

// MarkStale is Refresh for when what is known of a resource may have been lost where it came from. Until that is cleared up its
// group counts as never dealt with: whoever has the group after a crash begins with a list, and doubts it as well.
func (i *Queue) MarkStale(r Resource) {
	i.mu.Lock()
	e := i.entry(r)
	e.refreshRequests++
	e.stale = true
	i.mu.Unlock()
	i.queue.Add(r)
}

// FinishRefresh notes that the report was asked for and, if it was lost, that this is written down. asked is the letter's Refresh:
// what was asked for since then is still to be done.
func (i *Queue) FinishRefresh(r Resource, asked int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.entries[r]; e != nil && asked > 0 && e.refreshRequests == asked {
		e.refreshRequests, e.stale = 0, false
		i.removeIfIdle(r, e)
	}
}

// DiscardReport forgets a report of that revision, and any older one: Cluster Service does not know of it any more.
func (i *Queue) DiscardReport(r Resource, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.entries[r]; e != nil && e.report != nil && e.report.Revision <= revision {
		e.report, e.unhandled, e.unhandledSince = nil, 0, time.Time{}
		i.removeIfIdle(r, e)
	}
}

// Event is what there is to know of a resource when its turn comes.
type Event struct {
	// Report is the newest, nil when none has been heard since the resource was last settled; it may have been dealt with.
	Report *clusterservice.Report
	// UnhandledSince is since when there is a report that has not been dealt with; zero when there is none.
	UnhandledSince time.Time
	// Operations that are not known to be terminal, by id.
	Operations map[string]database.Key
	// RefreshRequests is how often it was asked that the report be read again, which is to be answered with Refreshed; 0 for not.
	RefreshRequests int
}

// Peek returns what there is to know of a resource.
func (i *Queue) Peek(r Resource) Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.entries[r]
	if e == nil {
		return Event{}
	}
	return Event{Report: e.report, UnhandledSince: e.unhandledSince, Operations: maps.Clone(e.operations), RefreshRequests: e.refreshRequests}
}

// Acknowledge notes that everything up to a revision has been dealt with for a resource.
func (i *Queue) Acknowledge(r Resource, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.entries[r]
	if e == nil || e.report == nil || e.report.Revision > revision {
		// A newer one came meanwhile: it, and with it the resource, is still to be dealt with.
		if e != nil && e.unhandled != 0 && e.report != nil {
			e.unhandled, e.unhandledSince = min(revision+1, e.report.Revision), time.Now()
		}
		return
	}
	e.unhandled, e.unhandledSince = 0, time.Time{}
	i.removeIfIdle(r, e)
}

// RemoveOperation notes that an operation is terminal.
func (i *Queue) RemoveOperation(r Resource, id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.entries[r]; e != nil {
		delete(e.operations, id)
		delete(i.resourceByOperation, id)
		i.removeIfIdle(r, e)
	}
}

// removeIfIdle lets go of a resource with which nothing is under way. As long as an operation is, the newest report is kept:
// it says whether Cluster Service has the operation's generation.
func (i *Queue) removeIfIdle(r Resource, e *entry) {
	if e.unhandled == 0 && len(e.operations) == 0 && e.refreshRequests == 0 {
		delete(i.entries, r)
	}
}

// DropGroup forgets everything of a group that this replica has lost.
func (i *Queue) DropGroup(group partition.Group) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.entries, func(r Resource, _ *entry) bool { return r.Group() == group })
	maps.DeleteFunc(i.resourceByOperation, func(_ string, r Resource) bool { return r.Group() == group })
}

// ResourceOfOperation is the resource that an operation works on, if it is known to be under way. A report of a credential or of a
// revocation names nothing but the operation. One that comes before the operation is found is not needed: what is asked of
// Cluster Service then is answered with it.
func (i *Queue) ResourceOfOperation(id string) (Resource, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, ok := i.resourceByOperation[id]
	return r, ok
}

// AdvanceRevision notes up to which revision Cluster Service has sent everything.
func (i *Queue) AdvanceRevision(revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.received = max(i.received, revision)
}

// ResetRevision notes that the watch begins again after revision, perhaps an earlier one.
func (i *Queue) ResetRevision(revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.received = revision
}

// HandledRevisions are up to where each group has been dealt with; groups that are not in the result are up to the other
// result.
func (i *Queue) HandledRevisions() (behind map[partition.Group]int64, others int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	behind = map[partition.Group]int64{}
	for r, e := range i.entries {
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
	return behind, i.received
}

// Len is how many resources something is under way with, and Queued how many wait for their turn now.
func (i *Queue) Len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.entries)
}

// Ready is how many resources wait for their turn now.
func (i *Queue) Ready() int { return i.queue.Len() }

// Next waits for the next resource; done is to be called when its turn is over. It returns false after Close.
func (i *Queue) Next() (r Resource, done func(), ok bool) {
	r, shutdown := i.queue.Get()
	if shutdown {
		return "", nil, false
	}
	return r, func() { i.queue.Done(r) }, true
}

// AddAfter queues a resource after a pause.
func (i *Queue) AddAfter(r Resource, after time.Duration) { i.queue.AddAfter(r, after) }

// AddRateLimited queues a resource after a pause that grows with every call until Settled.
func (i *Queue) AddRateLimited(r Resource) { i.queue.AddRateLimited(r) }

// NumRequeues is how often Retry was called since Settled.
func (i *Queue) NumRequeues(r Resource) int { return i.queue.NumRequeues(r) }

// RequeueAll queues every resource that something is under way with: what kept them from going on may be over.
func (i *Queue) RequeueAll() {
	i.mu.Lock()
	resources := slices.Collect(maps.Keys(i.entries))
	i.mu.Unlock()
	for _, r := range resources {
		i.queue.Add(r)
	}
}

// Forget ends the growing of pauses.
func (i *Queue) Forget(r Resource) { i.queue.Forget(r) }

// ShutDown ends the queue: Next returns false.
func (i *Queue) ShutDown() { i.queue.ShutDown() }
