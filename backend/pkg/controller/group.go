// Package controller has what the controllers of the backend share. Replicas share the work in groups of subscriptions, which package
// internal/partition leases to them. A Dispatcher passes the documents in the groups of this replica to Handlers: every written document, from the
// change feed, and all existing ones, by resyncs. RunWorkers processes the keys of a queue. The package does not depend on kinds of documents.
package controller

import (
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/partition"
)

// Groups is the number of groups. It bounds how many replicas share the work. It must not change while replicas with
// another number run.
const Groups = 16

// Group is the number of a group, 0 to Groups-1.
type Group = partition.Group

// Owner holds the groups of this replica, and for each the handled revision of Cluster Service.
type Owner = partition.Owner

// GroupOf returns the group of a subscription.
func GroupOf(subscriptionID string) Group { return partition.Of(subscriptionID, Groups) }

// NewOwner returns an Owner for the named replica. duration is how long after its owner's last heartbeat another
// replica acquires a group; 0 means the default of package database.
func NewOwner(replica string, duration time.Duration, log *slog.Logger) *Owner {
	return partition.NewOwner(partition.Options{Service: "backend", Groups: Groups, Replica: replica, Duration: duration, Log: log})
}
