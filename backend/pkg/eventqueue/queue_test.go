package eventqueue_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const resource = eventqueue.Resource("/subscriptions/s/resourcegroups/g/providers/microsoft.redhatopenshift/hcpopenshiftclusters/a")

func reported(revision int64) *clusterservice.Report {
	return &clusterservice.Report{UID: "uid", ResourceID: string(resource), Revision: revision}
}

// operation returns a running operation of the resource.
func operation(id string, request database.OperationRequest, started time.Time) *database.Item[database.OperationDocument] {
	return &database.Item[database.OperationDocument]{
		Key:   database.OperationKey("s", "-", id),
		Value: database.OperationDocument{OperationID: id, Request: request, ResourceID: string(resource), StartTime: started},
	}
}

// handled returns the handled revision of the resource's group.
func handled(in *eventqueue.Queue) int64 {
	behind, others := in.HandledRevisions()
	if up, ok := behind[resource.Group()]; ok {
		return up
	}
	return others
}

func TestHandledRevisionWaitsForOpenReports(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddReport(reported(7))
	in.AddReport(reported(9))
	in.AdvanceRevision(12)
	if got := handled(in); got != 6 {
		t.Errorf("with an open report of revision 7 the handled revision is %d", got)
	}
	in.Acknowledge(resource, 7)
	if got := handled(in); got != 7 {
		t.Errorf("with an open report of revision 9 the handled revision is %d", got)
	}
	in.Acknowledge(resource, 9)
	if got := handled(in); got != 12 || in.Len() != 0 {
		t.Errorf("without open reports the handled revision is %d, and %d resources are held", got, in.Len())
	}
}

// TestStaleResourceHoldsBackRevision: a crash must not lose the mark while the handled revision advances.
func TestStaleResourceHoldsBackRevision(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddOperation(operation("operation", database.CreateRequest, time.Time{}))
	in.AdvanceRevision(1000)
	in.MarkStale(resource)
	if got := handled(in); got != 0 {
		t.Errorf("with a stale resource the handled revision is %d: the fleet would not be listed after a crash", got)
	}
	letter := in.Peek(resource)
	in.MarkStale(resource)
	in.FinishRefresh(resource, letter.RefreshRequests)
	if got := handled(in); got != 0 {
		t.Errorf("a mark during the refresh was lost: the handled revision is %d", got)
	}
	letter = in.Peek(resource)
	if letter.RefreshRequests == 0 {
		t.Fatal("a failed refresh has removed the request")
	}
	in.FinishRefresh(resource, letter.RefreshRequests)
	if got := handled(in); got != 1000 || in.Peek(resource).RefreshRequests != 0 {
		t.Errorf("after the refresh the handled revision is %d", got)
	}
	in.RemoveOperation(resource, "operation")
	if in.Len() != 0 {
		t.Errorf("%d resources are held", in.Len())
	}
}

func TestDiscardReportKeepsNewerReports(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddOperation(operation("operation", database.CreateRequest, time.Time{}))
	in.AddReport(reported(7))
	in.DiscardReport(resource, 6)
	if in.Peek(resource).Report == nil {
		t.Error("a report that is newer than the discarded one was removed")
	}
	in.DiscardReport(resource, 7)
	in.AdvanceRevision(12)
	if letter := in.Peek(resource); letter.Report != nil || !letter.UnhandledSince.IsZero() || handled(in) != 12 {
		t.Errorf("the discarded report is still there: %+v, handled revision %d", letter, handled(in))
	}
}

func TestRunningOperationsAreCountedByClass(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	now := time.Now()
	registry := prometheus.NewRegistry()
	registry.MustRegister(eventqueue.NewCollector(in, func() time.Time { return now }))
	in.AddOperation(operation("first", database.UpdateRequest, now.Add(-90*time.Second)))
	in.AddOperation(operation("first", database.UpdateRequest, now.Add(-90*time.Second)))
	in.AddOperation(operation("second", database.UpdateRequest, now.Add(-30*time.Second)))
	in.AddOperation(operation("unknown", "Rename", now.Add(-5*time.Second)))
	check := func(running, oldest, unknown float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, series := range family.GetMetric() {
				got[family.GetName()+" "+series.GetLabel()[0].GetValue()+" "+series.GetLabel()[1].GetValue()] = series.GetGauge().GetValue()
			}
		}
		if want := (len(eventqueue.OperationClasses()) + 1) * 2; len(got) != want {
			t.Errorf("%d series are exported, want %d", len(got), want)
		}
		for series, want := range map[string]float64{
			"backend_operations_in_flight cluster Update":      running,
			"backend_operations_oldest_seconds cluster Update": oldest,
			"backend_operations_in_flight other Other":         unknown,
		} {
			if value, ok := got[series]; !ok || value != want {
				t.Errorf("%s is %v, exported %v, want %v", series, value, ok, want)
			}
		}
	}
	check(2, 90, 1)
	in.RemoveOperation(resource, "first")
	check(1, 30, 1)
	in.DropGroup(resource.Group())
	check(0, 0, 0)
}
