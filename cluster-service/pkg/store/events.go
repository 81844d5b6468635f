package store

import (
	"context"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// Event describes what one committed transaction of this process makes necessary or possible. The rows already contain the
// same facts: a process that dies before it handles an event, and every other replica, finds them there. An event only
// saves the wait for the next scan of the database.
type Event struct {
	// Revision is the newest revision that the transaction gave to a resource, or 0 if no resource changed.
	Revision int64
	// WorksDue are the clusters with works to publish now. The transaction acquired the lease of these works.
	WorksDue []string
	// AzureStepsDue are the clusters with steps in Azure to try now. The transaction acquired the lease of these clusters.
	AzureStepsDue []string
	// PlacementChanged reports that a cluster that waits for a place may get one: a place became free, a provision shard
	// changed, or the placement policy of a cluster changed.
	PlacementChanged bool
	// UpgradesChanged reports that an upgrade may start, or that one now waits for another time: an upgrade of a policy
	// ended, the start time of an upgrade changed, or a policy was stored or deleted.
	UpgradesChanged bool
	// DeletionsUnblocked reports that a stuck step of a deletion ended or was forced. A forced step can leave works behind,
	// whose deletion is requested until it is confirmed.
	DeletionsUnblocked bool
	// Access are the changes of the access to clusters, for the audit log.
	Access []fleet.AccessRecord
	// Waits are the waits of requests that ended, for their traces.
	Waits []fleet.Wait
}

// Subscribe registers a handler that is called once after each committed transaction of this process that has an event, and
// never for a transaction that was rolled back. Handlers run on the goroutine of the transaction, after its connection was
// returned to the pool and in the order of registration. They must not block and must bound what they store. Subscribe must
// not be called after the store is in use.
func (s *Store) Subscribe(handle func(ctx context.Context, e Event)) {
	s.subscribers = append(s.subscribers, handle)
}

// publish calls the subscribers. The context keeps its values, but the end of the request does not cancel it: the
// transaction is committed.
func (s *Store) publish(ctx context.Context, e Event) {
	ctx = context.WithoutCancel(ctx)
	for _, handle := range s.subscribers {
		handle(ctx, e)
	}
}
