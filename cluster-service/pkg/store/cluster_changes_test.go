package store_test

import (
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// setGeneration stores a generation of a cluster, and nothing if the change fails.
func setGeneration(t *testing.T, s *store.Store, uid string, generation int64) {
	t.Helper()
	must.Do(t, update(t.Context(), s, uid, func(a *fleet.ClusterAggregate) { a.Cluster.Generation = generation }))
}

// generations returns the generations in the stored changes of a cluster, in the order of the list.
func generations(t *testing.T, s *store.Store, uid string) (found []int64) {
	t.Helper()
	changes := must.Get(s.ClusterChanges(t.Context(), uid))(t)
	for _, c := range changes {
		if of, ok := c.GetChange().(*csv1.ClusterChange_DesiredState); ok {
			found = append(found, of.DesiredState.GetGeneration())
		}
	}
	return found
}

// TestClusterChangesAreBounded checks the order of changes, that the newest 500 of a cluster are stored, and that those of other clusters
// remain.
func TestClusterChangesAreBounded(t *testing.T) {
	s := open(t, store.Options{})
	uids := fleetOf(t, s, 2)
	const last = 520
	for generation := int64(2); generation <= last; generation++ {
		setGeneration(t, s, uids[0], generation)
	}
	found := generations(t, s, uids[0])
	if len(found) != 500 || found[0] != last || found[499] != last-499 {
		t.Errorf("%d changes, from generation %d to %d", len(found), found[0], found[len(found)-1])
	}
	if other := generations(t, s, uids[1]); len(other) != 1 || other[0] != 1 {
		t.Errorf("the changes of the other cluster are %v", other)
	}
}

// TestClusterChangesAreRemoved checks that Purge removes changes after 14 days, and those of a cluster with its tombstone.
func TestClusterChangesAreRemoved(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	s := open(t, store.Options{Now: func() time.Time { return now }})
	uids := fleetOf(t, s, 2)
	now = now.Add(10 * 24 * time.Hour)
	setGeneration(t, s, uids[0], 2)
	must.Do(t, end(t.Context(), s, uids[1]))
	now = now.Add(5 * 24 * time.Hour)
	must.Do(t, s.Purge(t.Context(), now.Add(-7*24*time.Hour)))
	if found := generations(t, s, uids[0]); len(found) != 1 || found[0] != 2 {
		t.Errorf("after 15 days: %v", found)
	}
	now = now.Add(5 * 24 * time.Hour)
	must.Do(t, s.Purge(t.Context(), now.Add(-7*24*time.Hour)))
	if changes, err := s.ClusterChanges(t.Context(), uids[1]); err != nil || len(changes) > 0 {
		t.Errorf("the changes of a removed cluster are %v, %v", changes, err)
	}
}
