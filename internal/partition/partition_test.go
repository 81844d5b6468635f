package partition

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestGroupsOfKeysNeverChange: replicas of two releases must agree on the group of a key.
func TestGroupsOfKeysNeverChange(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]map[int]Group{
		"00000000-0000-0000-0000-000000000001": {16: 14, 256: 62},
		"FF86f9a2-ac4f-4aaf-9e2e-000000000ABC": {16: 10, 256: 250},
		"admin":                                {16: 4, 256: 20},
	} {
		for groups, group := range want {
			if got := Of(key, groups); got != group || Of(strings.ToUpper(key), groups) != group {
				t.Errorf("Of(%q, %d) = %d, want %d in any case", key, groups, got, group)
			}
		}
	}
}

// TestGroupsOfRandomUIDsAreSpreadEvenly uses random UUIDs of a fixed seed, as UIDs and subscription IDs are.
func TestGroupsOfRandomUIDsAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	const keys, groups = 100_000, 256
	random := rand.New(rand.NewPCG(1, 2))
	counts := make([]int, groups)
	for range keys {
		counts[Of(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.Uint32N(1<<16), random.Uint32N(1<<12), random.Uint32N(1<<12), random.Uint64N(1<<48)), groups)]++
	}
	if least, most := slices.Min(counts), slices.Max(counts); least < keys/groups/2 || most > keys/groups*2 {
		t.Errorf("groups have %d to %d keys, want about %d", least, most, keys/groups)
	}
}

// leaser grants all leases at once and keeps them until the context ends.
type leaser struct{ options database.LeaseOptions }

func (l *leaser) RunLeases(ctx context.Context, options database.LeaseOptions, run func(ctx context.Context, lease *database.Lease)) error {
	l.options = options
	var wg sync.WaitGroup
	for _, name := range options.Names {
		wg.Go(func() { run(ctx, &database.Lease{Name: name}) })
	}
	wg.Wait()
	return ctx.Err()
}

func TestOwnerReportsAcquiredAndLostGroups(t *testing.T) {
	t.Parallel()
	owner := NewOwner(Options{Service: "test", Groups: 4, Replica: "a", Log: slog.New(slog.DiscardHandler)})
	acquired, lost := make(chan Group, 4), make(chan Group, 4)
	owner.Subscribe(func(g Group) { acquired <- g }, func(g Group) { lost <- g })
	ctx, cancel := context.WithCancel(t.Context())
	leases := &leaser{}
	var wg sync.WaitGroup
	wg.Go(func() { _ = owner.Run(ctx, leases) })
	for range 4 {
		if group := <-acquired; !owner.Owns(group) {
			t.Errorf("group %d was acquired and is not owned", group)
		}
	}
	owner.SetRevision(2, 42)
	owner.SetRevision(7, 1) // not owned
	if revisions := owner.Revisions(); owner.Owned() != 4 || revisions[2] != 42 || revisions[1] != 0 || len(revisions) != 4 {
		t.Errorf("%d groups with revisions %v", owner.Owned(), revisions)
	}
	cancel()
	wg.Wait()
	if owner.Owned() != 0 || len(lost) != 4 || leases.options.Group != "test" || leases.options.Owner != "a" {
		t.Errorf("at the end: %d groups are owned, %d were lost; options %+v", owner.Owned(), len(lost), leases.options)
	}
}
