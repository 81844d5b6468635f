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
	fleet := &csv1.Deletion{Steps: []*csv1.DeletionStep{
		{Name: "hosted-cluster/publish", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE},
		{Name: "hosted-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, After: []string{"hosted-cluster/publish"},
			StuckTime: timestamppb.New(began), Stuck: true},
	}}
	const end = "life-billed: waiting after fleet-gone|beneath-removed: waiting after beneath-told,life-billed|documents-removed: waiting after beneath-removed"
	tests := map[string]struct {
		reason string
		facts  deletion.Facts
		after  time.Duration
		steps  string
		stuck  string
		next   time.Duration
	}{
		"Accepted": {
			reason: "nothing has been done, and nothing takes too long",
			facts:  deletion.Facts{}, after: time.Minute,
			steps: "beneath-told: running|fleet-asked: running|fleet-gone: waiting after fleet-asked|" + end,
			next:  2 * time.Minute,
		},
		"ClusterServiceIsAway": {
			reason: "Cluster Service takes nothing",
			facts:  deletion.Facts{Told: true}, after: 3 * time.Minute,
			steps: "beneath-told: done|fleet-asked: running|fleet-gone: waiting after fleet-asked|" + end,
			stuck: "fleet-asked",
		},
		"InTheFleet": {
			reason: "a stuck step of Cluster Service is its own to report",
			facts:  deletion.Facts{Told: true, Asked: true, AskedAt: began.Add(time.Second), Fleet: fleet}, after: 3 * time.Minute,
			steps: "beneath-told: done|fleet-asked: done|hosted-cluster/publish: done after fleet-asked|hosted-cluster: running after hosted-cluster/publish|" +
				"fleet-gone: running after fleet-asked,hosted-cluster/publish,hosted-cluster|" + end,
			next: time.Hour + time.Second,
		},
		"NotBilled": {
			reason: "what bills is a store of its own",
			facts:  deletion.Facts{Told: true, Asked: true, Gone: true, GoneAt: began.Add(time.Hour)}, after: time.Hour + 3*time.Minute,
			steps: "beneath-told: done|fleet-asked: done|fleet-gone: done after fleet-asked|life-billed: running after fleet-gone|" +
				"beneath-removed: waiting after beneath-told,life-billed|documents-removed: waiting after beneath-removed",
			stuck: "life-billed",
		},
		"MissedItsEnd": {
			reason: "Cluster Service has long had nothing left",
			facts:  deletion.Facts{Told: true, Asked: true, Gone: true, Billed: true, Emptied: true, GoneAt: began.Add(time.Hour)}, after: time.Hour + 3*time.Minute,
			steps: "beneath-told: done|fleet-asked: done|fleet-gone: done after fleet-asked|life-billed: done after fleet-gone|" +
				"beneath-removed: done after beneath-told,life-billed|documents-removed: running after beneath-removed",
			stuck: "documents-removed",
		},
		"Over": {
			reason: "nothing is left to wait for",
			facts:  deletion.Facts{Told: true, Asked: true, Gone: true, Billed: true, Emptied: true, Removed: true}, after: 100 * time.Hour,
			steps: "beneath-told: done|fleet-asked: done|fleet-gone: done after fleet-asked|life-billed: done after fleet-gone|" +
				"beneath-removed: done after beneath-told,life-billed|documents-removed: done after beneath-removed",
		},
		"Part": {
			reason: "a part of a cluster has nothing beneath it and is not billed",
			facts:  deletion.Facts{Part: "node-pool/np1", Asked: true, Gone: true}, after: time.Minute,
			steps: "node-pool/np1/fleet-asked: done|node-pool/np1/fleet-gone: done after node-pool/np1/fleet-asked|" +
				"node-pool/np1/documents-removed: running after node-pool/np1/fleet-gone",
			next: 2 * time.Minute,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.Began = began
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
			stuck, next := tc.facts.Stuck(began.Add(tc.after))
			if stuck != tc.stuck || tc.next == 0 != next.IsZero() || tc.next > 0 && !next.Equal(began.Add(tc.next)) {
				t.Errorf("%s: stuck in %q, next at %s; want %q, %s", tc.reason, stuck, next, tc.stuck, began.Add(tc.next))
			}
		})
	}
}
