package databasetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestClosedFencesRejectBatches: a batch that added a fence before the fences were closed cannot be committed
// afterwards.
func TestClosedFencesRejectBatches(t *testing.T) {
	db, server := databasetest.New(t)
	pass := func(name string) *database.Batch {
		t.Helper()
		batch := db.NewBatch(subscription)
		must.Do(t, db.AddFence(t.Context(), batch))
		database.Create(batch, db.Clusters(), clusterKey(t, name), cluster(name))
		return batch
	}
	// Of 64 batches most replace an existing fence; the others create one.
	for i := range 32 {
		must.Do(t, pass(fmt.Sprintf("early-%d", i)).Commit(t.Context()))
	}
	var late []*database.Batch
	for i := range 64 {
		late = append(late, pass(fmt.Sprintf("late-%d", i)))
	}
	must.Do(t, server.Open(t).CloseFences(t.Context(), subscription))
	for _, batch := range late {
		race, lost := database.AsWriteConflict(batch.Commit(t.Context()))
		if !lost || race.Kind != database.FenceKind {
			t.Errorf("a commit after the fences were closed: %v", race)
		}
	}
	if err := db.AddFence(t.Context(), db.NewBatch(subscription)); apierror.KindOf(err) != apierror.InvalidSubscriptionState {
		t.Errorf("adding a closed fence: %v", err)
	}
	if err := db.CloseFences(t.Context(), subscription); err != nil {
		t.Errorf("closing the fences again: %v", err)
	}
	if items, _, err := db.Clusters().List(t.Context(), subscription, "", "", 100); err != nil || len(items) != 32 {
		t.Errorf("%d clusters were created, want 32: %v", len(items), err)
	}
}

// TestConcurrentBatchesWithFences: batches at the same time do not prevent each other.
func TestConcurrentBatchesWithFences(t *testing.T) {
	db, _ := databasetest.New(t)
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			err := database.Retry(t.Context(), func(ctx context.Context) error {
				batch := db.NewBatch(subscription)
				if err := db.AddFence(ctx, batch); err != nil {
					return err
				}
				database.Create(batch, db.Clusters(), clusterKey(t, fmt.Sprintf("c%d", i)), cluster("uid"))
				return batch.Commit(ctx)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
