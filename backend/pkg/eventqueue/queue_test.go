package eventqueue_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const resource = eventqueue.Resource("/subscriptions/s/resourcegroups/g/providers/microsoft.redhatopenshift/hcpopenshiftclusters/a")

func reported(revision int64) *clusterservice.Report {
	return &clusterservice.Report{UID: "uid", ResourceID: string(resource), Revision: revision}
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
	in.AddOperation(resource, "operation", database.Key{})
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
	in.AddOperation(resource, "operation", database.Key{})
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
