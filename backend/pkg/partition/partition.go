// Package partition defines the groups in which the backend's replicas share their work: every subscription belongs to one of a
// fixed number of groups. Package internal/partition leases the groups to the replicas.
package partition

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

// Of returns the group of a subscription.
func Of(subscriptionID string) Group { return partition.Of(subscriptionID, Groups) }

// NewOwner returns an Owner for the named replica. duration is how long after its owner's last heartbeat another
// replica acquires a group; 0 means the default of package database.
func NewOwner(replica string, duration time.Duration, log *slog.Logger) *Owner {
	return partition.NewOwner(partition.Options{Service: "backend", Groups: Groups, Replica: replica, Duration: duration, Log: log})
}
