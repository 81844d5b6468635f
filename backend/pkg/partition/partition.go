// Package partition divides the backend's work among its replicas. Every subscription belongs to one of a fixed number
// of groups, and every group is leased to one replica at a time.
//
// A component processes an event only if the replica owns the event's group. A replica that has acquired a group lists
// its open work. Ownership only avoids duplicate work: when two replicas act at the same time during a transition,
// compare-and-swap and Cluster Service's idempotence keep the result correct.
package partition

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Groups is the number of groups. It bounds how many replicas share the work. It must not change while replicas with
// another number run.
const Groups = 16

// Group is the number of a group, 0 to Groups-1.
type Group int

// Of returns the group of a subscription.
func Of(subscriptionID string) Group {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.ToLower(subscriptionID)))
	return Group(hash.Sum32() % Groups)
}

// Leaser shares leases among replicas. *database.DB implements it.
type Leaser interface {
	RunLeases(ctx context.Context, options database.LeaseOptions, run func(ctx context.Context, lease *database.Lease)) error
}

// Owner holds the groups of this replica, and for each the handled revision of Cluster Service.
type Owner struct {
	replica  string
	duration time.Duration
	log      *slog.Logger

	mu       sync.Mutex
	owned    map[Group]*database.Lease
	acquired func(Group)
	lost     func(Group)
}

// NewOwner returns an Owner for the named replica. duration is how long after its owner's last heartbeat another
// replica acquires a group; 0 means the default of package database.
func NewOwner(replica string, duration time.Duration, log *slog.Logger) *Owner {
	return &Owner{replica: replica, duration: duration, log: log, owned: map[Group]*database.Lease{}}
}

// Subscribe sets the functions to call after a group is acquired or lost. It must be called once, before Run.
func (o *Owner) Subscribe(acquired, lost func(Group)) {
	o.acquired, o.lost = acquired, lost
}

// Run takes part in sharing the groups until ctx ends.
func (o *Owner) Run(ctx context.Context, leaser Leaser) error {
	names := make([]string, Groups)
	for g := range names {
		names[g] = strconv.Itoa(g)
	}
	return leaser.RunLeases(ctx, database.LeaseOptions{
		Group: "backend", Owner: o.replica, Names: names, Duration: o.duration, Log: o.log,
	}, func(ctx context.Context, lease *database.Lease) {
		number, err := strconv.Atoi(lease.Name)
		if err != nil {
			return
		}
		group := Group(number)
		o.mu.Lock()
		o.owned[group] = lease
		o.mu.Unlock()
		o.acquired(group)
		<-ctx.Done()
		o.mu.Lock()
		delete(o.owned, group)
		o.mu.Unlock()
		o.lost(group)
	})
}

// Owns reports whether this replica has the group.
func (o *Owner) Owns(group Group) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned[group] != nil
}

// Owned returns how many groups this replica has.
func (o *Owner) Owned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.owned)
}

// Revisions returns the handled revisions of Cluster Service by owned group.
func (o *Owner) Revisions() map[Group]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	revisions := make(map[Group]int64, len(o.owned))
	for group, lease := range o.owned {
		// A position of another release may not be a number. Starting again from 0 is always correct.
		revisions[group], _ = strconv.ParseInt(lease.Position(), 10, 64)
	}
	return revisions
}

// SetRevision stores the handled revision of a group with its lease, within seconds.
func (o *Owner) SetRevision(group Group, revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lease := o.owned[group]; lease != nil {
		lease.SetPosition(fmt.Sprint(revision))
	}
}
