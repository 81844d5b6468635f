// Package partition divides the work of a service among its replicas. Every key, for example a subscription, belongs to one of
// a fixed number of groups, and every group is leased to one replica at a time.
//
// A component processes an event only if the replica owns the event's group. A replica that has acquired a group lists its open
// work. Ownership only avoids duplicate work: when two replicas act at the same time during a transition, the work itself must
// keep the result correct, for example by compare-and-swap.
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

// Group is the number of a group, from 0.
type Group int

// Of returns the group of a key among a number of groups. Case does not matter.
func Of(key string, groups int) Group {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.ToLower(key)))
	return Group(hash.Sum32() % uint32(groups))
}

// Leaser shares leases among replicas. *database.DB implements it.
type Leaser interface {
	RunLeases(ctx context.Context, options database.LeaseOptions, run func(ctx context.Context, lease *database.Lease)) error
}

// Options describe the work that the replicas of a service share.
type Options struct {
	// Service names the work. It is the partition of the leases.
	Service string
	// Groups is the number of groups. It bounds how many replicas share the work. It must not change while replicas with
	// another number run.
	Groups int
	// Replica names this replica; see database.LeaseOptions.
	Replica string
	// Duration is how long after its owner's last heartbeat another replica acquires a group; 0 means the default of package
	// database.
	Duration time.Duration
	Log      *slog.Logger
}

// Owner holds the groups of this replica, and for each a handled revision. It is safe for concurrent use.
type Owner struct {
	options Options

	mu       sync.Mutex
	owned    map[Group]*database.Lease
	acquired func(Group)
	lost     func(Group)
}

// NewOwner returns an Owner without groups.
func NewOwner(options Options) *Owner {
	return &Owner{options: options, owned: map[Group]*database.Lease{}}
}

// Subscribe sets the functions to call after a group is acquired or lost. It must be called once, before Run.
func (o *Owner) Subscribe(acquired, lost func(Group)) {
	o.acquired, o.lost = acquired, lost
}

// Run takes part in sharing the groups until ctx ends.
func (o *Owner) Run(ctx context.Context, leaser Leaser) error {
	names := make([]string, o.options.Groups)
	for g := range names {
		names[g] = strconv.Itoa(g)
	}
	return leaser.RunLeases(ctx, database.LeaseOptions{
		Group: o.options.Service, Owner: o.options.Replica, Names: names, Duration: o.options.Duration, Log: o.options.Log,
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

// Revisions returns the handled revisions by owned group.
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
