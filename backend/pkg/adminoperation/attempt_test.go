package adminoperation_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
)

// TestAttemptsAreRecorded executes one operation that succeeds and one that Cluster Service refuses.
func TestAttemptsAreRecorded(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	target := database.AdminTarget{Kind: "cluster", ID: "uid", ClusterUID: "uid"}
	h.await(t, h.requestOn(t, "first", adminv1.ActionClusterRetry, target, map[string]string{"clusterUid": "uid"}), database.AdminSucceeded)
	h.fleet.mu.Lock()
	h.fleet.reject = apierror.New(apierror.FailedPrecondition, "No step can be retried.")
	h.fleet.mu.Unlock()
	h.await(t, h.requestOn(t, "second", adminv1.ActionClusterRetry, target, map[string]string{"clusterUid": "uid"}), database.AdminFailed)
	want := func(operation, outcome, code string) audit.Record {
		return audit.Record{
			Person: audit.Person{Name: "alice@example.com", ObjectID: "alice", Role: "operator"}, Action: adminv1.ActionClusterRetry,
			Object: audit.Object{Kind: "cluster", ID: "uid", Cluster: "uid"}, Reason: "it is stuck", Ticket: "INC-1", Outcome: outcome, Code: code, Operation: operation,
		}
	}
	code := apierror.FailedPrecondition.ARMCode()
	wanted := []audit.Record{want("first", audit.Started, ""), want("first", audit.Succeeded, ""), want("second", audit.Started, ""), want("second", audit.Failed, code)}
	if diff := cmp.Diff(wanted, h.trail.Records(t), cmpopts.IgnoreFields(audit.Person{}, "Elevation")); diff != "" {
		t.Error(diff)
	}
	h.trail.Verify(t)
}

// TestEmergencyIsRecorded executes an operation with an elevation that nobody approved.
func TestEmergencyIsRecorded(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	o := operation("emergency")
	elevation := intenttest.Elevation(&o, time.Hour)
	elevation.Emergency = true
	h.admin.Sign(t, &o, &elevation)
	h.await(t, h.insert(t, o, &elevation), database.AdminSucceeded)
	records := h.trail.Records(t)
	for _, r := range records {
		if !r.Emergency {
			t.Errorf("a record is not marked: %+v", r)
		}
	}
	if len(records) != 2 {
		t.Errorf("%d records, want 2", len(records))
	}
}

// TestOperationWaitsForTheAudit fills the audit queue: the operation must not have its effect until its record is stored.
func TestOperationWaitsForTheAudit(t *testing.T) {
	h := newEnvironment(t)
	trail := audittest.New(t, "backend", writer.MinBytes)
	trail.SinkAway(true)
	for trail.Append(t.Context(), audit.Record{Action: "fill"}) == nil {
		continue
	}
	h.run(t, adminoperation.Options{Audit: trail})
	key := h.pool(t, "Succeeded", "")
	replicas := int32(7)
	operation := h.requestOn(t, "scale", adminv1.ActionNodePoolScale, database.AdminTarget{Kind: "nodePool", ID: "pool", ResourceID: poolID, ClusterUID: "uid"}, adminv1.ScaleRequest{Replicas: &replicas})
	h.awaitAttempts(t, operation, 2)
	if item, err := h.db.NodePools().Get(t.Context(), key); err != nil || item.Value.Generation != 3 {
		t.Errorf("the operation had its effect without a record: %+v, %v", item, err)
	}
	trail.SinkAway(false)
	h.await(t, operation, database.AdminSucceeded)
	trail.Verify(t)
}

// TestRefusedOperationIsRecorded inserts an operation without an intent. Its records name nobody as the actor, because whoever wrote the
// document may have named anybody.
func TestRefusedOperationIsRecorded(t *testing.T) {
	h := newEnvironment(t)
	stop := h.run(t, adminoperation.Options{})
	h.await(t, h.insert(t, operation("forged"), nil), database.AdminFailed)
	stop()
	logged := h.log.String()
	for _, want := range []string{"record=audit", "operation_id=forged", `actor=""`, "outcome=Failed", "claimed_actor=alice@example.com"} {
		if !strings.Contains(logged, want) {
			t.Errorf("the logged record lacks %s: %s", want, logged)
		}
	}
	want := []audit.Record{{
		Action: adminv1.ActionClusterRetry, Object: audit.Object{Kind: "cluster", ID: "uid", Cluster: "uid"}, Operation: "forged",
		Outcome: audit.Refused, Code: apierror.PermissionDenied.ARMCode(),
	}}
	if diff := cmp.Diff(want, h.trail.Records(t)); diff != "" {
		t.Error(diff)
	}
	h.trail.Verify(t)
}

// awaitAttempts waits until an operation that is not terminal had a number of attempts.
func (h *environment) awaitAttempts(t *testing.T, key database.Key, attempts int32) {
	t.Helper()
	eventually.Soon(t, "the operation is repeated", func() error {
		item, err := h.db.AdminOperations().Get(t.Context(), key)
		switch {
		case err != nil:
			return err
		case item.Value.State.Terminal():
			t.Fatalf("the operation is %s", item.Value.State)
		case item.Value.Attempts < attempts:
			return fmt.Errorf("%d attempts", item.Value.Attempts)
		}
		return nil
	})
}
