package deletion_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

func TestSteps(t *testing.T) {
	began := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	fleet := func(stuck bool, at time.Time) *csv1.Deletion {
		return &csv1.Deletion{Steps: []*csv1.DeletionStep{
			{Name: "hosted-cluster/publish", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: timestamppb.New(began.Add(time.Second))},
			{Name: "hosted-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, After: []string{"hosted-cluster/publish"}, StuckTime: timestamppb.New(at), Stuck: stuck},
		}}
	}
	accepted := func(fleet *csv1.Deletion) deletion.Facts {
		return deletion.Facts{ChildrenMarked: true, FleetAccepted: true, FleetAcceptedTime: began.Add(time.Second), Fleet: fleet}
	}
	const end = "billing-ended: waiting after fleet-deleted|children-removed: waiting after children-marked,billing-ended|documents-removed: waiting after children-removed"
	const fleetSteps = "children-marked: done|fleet-accepted: done|hosted-cluster/publish: done after fleet-accepted|hosted-cluster: running after hosted-cluster/publish|" +
		"fleet-deleted: running after fleet-accepted,hosted-cluster/publish,hosted-cluster|" + end
	tests := map[string]struct {
		reason string
		facts  deletion.Facts
		after  time.Duration
		steps  string
		stuck  string
		next   time.Duration
	}{
		"Accepted": {
			reason: "nothing has been done, and no step is late",
			facts:  deletion.Facts{}, after: time.Minute,
			steps: "children-marked: running|fleet-accepted: running|fleet-deleted: waiting after fleet-accepted|" + end,
			next:  2 * time.Minute,
		},
		"ClusterServiceUnavailable": {
			reason: "Cluster Service does not accept the deletion",
			facts:  deletion.Facts{ChildrenMarked: true}, after: 3 * time.Minute,
			steps: "children-marked: done|fleet-accepted: running|fleet-deleted: waiting after fleet-accepted|" + end,
			stuck: "fleet-accepted",
		},
		"FleetStepStuck": {
			reason: "Cluster Service reports its own stuck steps",
			facts:  accepted(fleet(true, began)), after: 3 * time.Minute, steps: fleetSteps,
		},
		"FleetStepRuns": {
			reason: "the limit follows from the limit of Cluster Service's step",
			facts:  accepted(fleet(false, began.Add(25*time.Minute))), after: 3 * time.Minute, steps: fleetSteps,
			next: 27 * time.Minute,
		},
		"FleetStepNotReportedAsStuck": {
			reason: "Cluster Service no longer reports: its step has exceeded its limit and is not marked",
			facts:  accepted(fleet(false, began.Add(25*time.Minute))), after: 27 * time.Minute, steps: fleetSteps,
			stuck: "fleet-deleted",
		},
		"FleetStepsEnded": {
			reason: "the report of the end has two minutes after the last step",
			facts: accepted(&csv1.Deletion{Steps: []*csv1.DeletionStep{{Name: "hosted-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_FORCED,
				Since: timestamppb.New(began.Add(90 * time.Minute))}}}), after: 91 * time.Minute,
			steps: "children-marked: done|fleet-accepted: done|hosted-cluster: forced after fleet-accepted|fleet-deleted: running after fleet-accepted,hosted-cluster|" + end,
			next:  92 * time.Minute,
		},
		"NoFleetSteps": {
			reason: "Cluster Service has nothing to do and does not report the end",
			facts:  accepted(&csv1.Deletion{}), after: 3 * time.Minute,
			steps: "children-marked: done|fleet-accepted: done|fleet-deleted: running after fleet-accepted|" + end,
			stuck: "fleet-deleted",
		},
		"NoReport": {
			reason: "without a report of Cluster Service the limit is unknown",
			facts:  accepted(nil), after: 3 * time.Minute,
			steps: "children-marked: done|fleet-accepted: done|fleet-deleted: running after fleet-accepted|" + end,
		},
		"BillingNotEnded": {
			reason: "billing has a container of its own",
			facts:  deletion.Facts{ChildrenMarked: true, FleetAccepted: true, FleetDeleted: true, FleetDeletedTime: began.Add(time.Hour)}, after: time.Hour + 3*time.Minute,
			steps: "children-marked: done|fleet-accepted: done|fleet-deleted: done after fleet-accepted|billing-ended: running after fleet-deleted|" +
				"children-removed: waiting after children-marked,billing-ended|documents-removed: waiting after children-removed",
			stuck: "billing-ended",
		},
		"DocumentsLeft": {
			reason: "only the last transaction is missing",
			facts:  deletion.Facts{ChildrenMarked: true, FleetAccepted: true, FleetDeleted: true, BillingEnded: true, ChildrenRemoved: true, FleetDeletedTime: began.Add(time.Hour)}, after: time.Hour + 3*time.Minute,
			steps: "children-marked: done|fleet-accepted: done|fleet-deleted: done after fleet-accepted|billing-ended: done after fleet-deleted|" +
				"children-removed: done after children-marked,billing-ended|documents-removed: running after children-removed",
			stuck: "documents-removed",
		},
		"Done": {
			reason: "all steps have ended",
			facts:  deletion.Facts{ChildrenMarked: true, FleetAccepted: true, FleetDeleted: true, BillingEnded: true, ChildrenRemoved: true, DocumentsRemoved: true}, after: 100 * time.Hour,
			steps: "children-marked: done|fleet-accepted: done|fleet-deleted: done after fleet-accepted|billing-ended: done after fleet-deleted|" +
				"children-removed: done after children-marked,billing-ended|documents-removed: done after children-removed",
		},
		"NodePool": {
			reason: "a node pool has no children and no billing",
			facts:  deletion.Facts{NamePrefix: "node-pool/np1", FleetAccepted: true, FleetDeleted: true}, after: time.Minute,
			steps: "node-pool/np1/fleet-accepted: done|node-pool/np1/fleet-deleted: done after node-pool/np1/fleet-accepted|" +
				"node-pool/np1/documents-removed: running after node-pool/np1/fleet-deleted",
			next: 2 * time.Minute,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.StartTime = began
			var steps []string
			for _, s := range tc.facts.Steps(began.Add(tc.after)) {
				line := s.GetName() + ": " + strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_"))
				if len(s.GetAfter()) > 0 {
					line += " after " + strings.Join(s.GetAfter(), ",")
				}
				steps = append(steps, line)
			}
			if diff := cmp.Diff(strings.Split(tc.steps, "|"), steps); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			stuck, next := tc.facts.StuckStep(began.Add(tc.after))
			if stuck != tc.stuck || tc.next == 0 != next.IsZero() || tc.next > 0 && !next.Equal(began.Add(tc.next)) {
				t.Errorf("%s: stuck in %q, next at %s; want %q, %s", tc.reason, stuck, next, tc.stuck, began.Add(tc.next))
			}
		})
	}
}
