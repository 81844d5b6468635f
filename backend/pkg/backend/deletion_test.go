package backend_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// TestStuckDeletionSaysWhy: a deletion that Cluster Service does not take in time is counted, keeps on its operation what
// goes wrong, and ends nevertheless once it is taken.
func TestStuckDeletionSaysWhy(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	stop := r.start("backend-0")
	key := clusterKey(subscription, "a")
	r.ends(r.createCluster(key), hub.Succeeded)
	stop()
	r.refuse(status.Error(codes.Unavailable, "not before noon"))
	operation := r.change(key, database.DeleteRequest)
	item, err := r.db.Operations().Get(t.Context(), operation)
	if err != nil {
		t.Fatal(err)
	}
	item.Value.StartTime = item.Value.StartTime.Add(-deletion.StuckAfter(deletion.Asked))
	r.commit(subscription, func(batch *database.Batch) { database.Replace(batch, item) })

	p := process.New("backend", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	db := r.cosmos.Open(t)
	go func() {
		defer close(done)
		_ = r.workAs(ctx, p, db, r.connection, "backend-0")
	}()
	t.Cleanup(func() { cancel(); <-done })
	stuck := func() (count float64) {
		families, err := p.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "backend_deletion_step_stuck" {
				for _, metric := range family.GetMetric() {
					if metric.GetLabel()[0].GetValue() == deletion.Asked {
						count = metric.GetGauge().GetValue()
					}
				}
			}
		}
		return count
	}
	r.eventually("the note", func() string {
		item, err := r.db.Operations().Get(t.Context(), operation)
		switch {
		case err != nil || item.Value.Status.Terminal():
			t.Fatalf("the operation ended early: %+v, %v", item, err)
		case len(item.Value.Deletion) != 1 || stuck() != 1:
			return fmt.Sprintf("%v deletions are counted as stuck, and the notes are %+v", stuck(), item.Value.Deletion)
		}
		if note := item.Value.Deletion[0]; note.Kind != deletion.Asked || note.Attempts < 1 || !strings.Contains(note.LastError, "not before noon") {
			t.Fatalf("the note: %+v", note)
		}
		return ""
	})
	r.refuse(nil)
	if ended := r.ends(operation, hub.Succeeded); len(ended.Deletion) != 1 {
		t.Errorf("the operation at its end: %+v", ended)
	}
	r.nothingLeft(subscription)
	r.eventually("the count", func() string {
		if stuck() != 0 {
			return "it is still counted"
		}
		return ""
	})
}
