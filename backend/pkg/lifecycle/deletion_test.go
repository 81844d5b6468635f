package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

func TestStuckStepsAreCountedOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, one := range []struct {
		resource, step string
		news           bool
	}{{"a", "", false}, {"a", "fleet-accepted", true}, {"a", "fleet-accepted", false}, {"b", "fleet-accepted", true}, {"a", "fleet-deleted", true}, {"b", "", true}, {"b", "", false}} {
		if news := m.setStuckStep(eventqueue.Resource("/subscriptions/s/"+one.resource), one.step); news != one.news {
			t.Errorf("%s in %q: changed %v, want %v", one.resource, one.step, news, one.news)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "backend_deletion_step_stuck" {
			continue
		}
		for _, metric := range family.GetMetric() {
			got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	if got["fleet-accepted"] != 0 || got["fleet-deleted"] != 1 || len(got) != 6 {
		t.Errorf("counted: %v", got)
	}
}

// TestStuckStepFollowsFromLastFailure: which of the last steps is stuck follows from the step at which the last
// processing failed.
func TestStuckStepFollowsFromLastFailure(t *testing.T) {
	const r = eventqueue.Resource("/subscriptions/s/resourcegroups/g/providers/microsoft.redhatopenshift/hcpopenshiftclusters/c")
	failure := errors.New("throttled")
	tests := map[string]struct {
		reason string
		failed error
		stuck  string
	}{
		"Billing":    {"billing ends before the children are removed", fmt.Errorf("purging: %w", withStep(deletion.StepBillingEnded, failure)), deletion.StepBillingEnded},
		"Children":   {"children are removed before the cluster", withStep(deletion.StepChildrenRemoved, failure), deletion.StepChildrenRemoved},
		"Elsewhere":  {"all other steps are one transaction", failure, deletion.StepDocumentsRemoved},
		"NotAtAll":   {"the resource was not processed", nil, deletion.StepDocumentsRemoved},
		"NoFailures": {"nil is not a failure", withStep(deletion.StepBillingEnded, nil), deletion.StepDocumentsRemoved},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := eventqueue.New()
			defer in.ShutDown()
			c := &Controller{queue: in, log: slog.New(slog.DiscardHandler), metrics: NewMetrics(prometheus.NewRegistry()),
				cascades: map[eventqueue.Resource]cascadeState{}, deletions: map[eventqueue.Resource]deletionState{}}
			k := &kind[database.ClusterDocument]{Controller: c, markChildrenDeleting: func(context.Context, *database.Item[database.ClusterDocument]) error { return nil }}
			now := time.Now()
			state, operation := hub.Failed, ""
			look := func(waiting time.Time) {
				k.trackDeletion(r, view{uid: "u", state: &state, operation: &operation, fleet: &database.FleetState{}}, nil, decision.Situation{Now: now, UnhandledSince: waiting,
					Report: &clusterservice.Report{Deleting: true, DeleteTime: now.Add(-time.Hour), Phase: clusterservice.PhaseDeleted}})
			}
			look(now)
			if got := c.deletions[r].stuck; got != "" {
				t.Errorf("stuck in %s at once", got)
			}
			if tc.failed != nil {
				// The operation has ended, so the failure is not stored.
				c.recordDeletionFailure(t.Context(), r, tc.failed, 3)
			}
			look(now.Add(-deletion.StuckAfter))
			if got := c.deletions[r].stuck; got != tc.stuck || c.metrics.stuckSteps[r] != tc.stuck {
				t.Errorf("%s: stuck in %q, want %q", tc.reason, got, tc.stuck)
			}
			c.forgetDeletion(r)
			if len(c.deletions) != 0 || len(c.metrics.stuckSteps) != 0 {
				t.Error("an ended deletion is still counted")
			}
		})
	}
}
