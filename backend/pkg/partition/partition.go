// Package partition divides the backend's work among its replicas: every subscription belongs to one of a fixed number
// of groups, and every group is leased to one replica at a time.
//
// Whoever receives work asks whether the work's group is owned here; a replica that has just got a group looks for what
// was left undone in it. Ownership only saves double work: what two replicas do at once in a moment of change is kept
// correct by compare-and-swap and by Cluster Service's idempotence.
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

// Groups is how many groups there are. It bounds how many replicas can share the work, and must not change while
// replicas with another number run.
const Groups = 16

// Group is the number of a group, 0 to Groups-1.
type Group int

// Of is the group of a subscription.
func Of(subscriptionID string) Group {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.ToLower(subscriptionID)))
	return Group(hash.Sum32() % Groups)
}

// Leaser shares named work among replicas; *database.DB is one.
type Leaser interface {
	RunLeases(ctx context.Context, options database.LeaseOptions, run func(ctx context.Context, lease *database.Lease)) error
}

// Owner knows which groups this replica has, and up to which revision of Cluster Service each was handled.
type Owner struct {
	replica  string
	duration time.Duration
	log      *slog.Logger

	mu       sync.Mutex
	owned    map[Group]*database.Lease
	acquired func(Group)
	lost     func(Group)
}

// NewOwner makes an Owner for the replica of that name. A group is taken over duration after its owner's last sign of
// life; 0 means the default of package database.
func NewOwner(replica string, duration time.Duration, log *slog.Logger) *Owner {
	return &Owner{replica: replica, duration: duration, log: log, owned: map[Group]*database.Lease{}}
}

// Subscribe has gained called after a group was got and dropped after it was lost. It is called once, before Run.
func (o *Owner) Subscribe(gained, dropped func(Group)) {
	o.acquired, o.lost = gained, dropped
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

// Owned is how many groups this replica has.
func (o *Owner) Owned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.owned)
}

// Revisions are the revisions of Cluster Service up to which the owned groups have been handled.
func (o *Owner) Revisions() map[Group]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	revisions := make(map[Group]int64, len(o.owned))
	for group, lease := range o.owned {
		// A position that is no number is of another release; to start again is always right.
		revisions[group], _ = strconv.ParseInt(lease.Position(), 10, 64)
	}
	return revisions
}

// SetRevision remembers, durably before long, up to where a group has been handled.
func (o *Owner) SetRevision(group Group, revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lease := o.owned[group]; lease != nil {
		lease.SetPosition(fmt.Sprint(revision))
	}
}
