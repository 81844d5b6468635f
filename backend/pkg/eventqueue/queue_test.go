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

// dealt is up to where the resource's group has been dealt with.
func dealt(in *eventqueue.Queue) int64 {
	behind, others := in.HandledRevisions()
	if up, ok := behind[resource.Group()]; ok {
		return up
	}
	return others
}

func TestRevisionsWaitForWhatIsNotDealtWith(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddReport(reported(7))
	in.AddReport(reported(9))
	in.AdvanceRevision(12)
	if got := dealt(in); got != 6 {
		t.Errorf("with news of revision 7 it is dealt with up to %d", got)
	}
	in.Acknowledge(resource, 7)
	if got := dealt(in); got != 7 {
		t.Errorf("with news of revision 9 left it is dealt with up to %d", got)
	}
	in.Acknowledge(resource, 9)
	if got := dealt(in); got != 12 || in.Len() != 0 {
		t.Errorf("with nothing left it is dealt with up to %d, and %d are in progress", got, in.Len())
	}
}

// TestADoubtIsClearedUpFirst: a crash must not make the doubts forgotten while the revisions go on.
func TestADoubtIsClearedUpFirst(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddOperation(resource, "operation", database.Key{})
	in.AdvanceRevision(1000)
	in.MarkStale(resource)
	if got := dealt(in); got != 0 {
		t.Errorf("while a resource is doubted its group is dealt with up to %d, and would not be listed after a crash", got)
	}
	letter := in.Peek(resource)
	in.MarkStale(resource)
	in.FinishRefresh(resource, letter.RefreshRequests)
	if got := dealt(in); got != 0 {
		t.Errorf("a doubt that came meanwhile was forgotten: dealt with up to %d", got)
	}
	letter = in.Peek(resource)
	if letter.RefreshRequests == 0 {
		t.Fatal("a turn that failed has forgotten what was asked")
	}
	in.FinishRefresh(resource, letter.RefreshRequests)
	if got := dealt(in); got != 1000 || in.Peek(resource).RefreshRequests != 0 {
		t.Errorf("cleared up, it is dealt with up to %d", got)
	}
	in.RemoveOperation(resource, "operation")
	if in.Len() != 0 {
		t.Errorf("%d resources are in progress", in.Len())
	}
}

func TestWhatIsLostIsForgotten(t *testing.T) {
	in := eventqueue.New()
	defer in.ShutDown()
	in.AddOperation(resource, "operation", database.Key{})
	in.AddReport(reported(7))
	in.DiscardReport(resource, 6)
	if in.Peek(resource).Report == nil {
		t.Error("news of later than what was lost was forgotten")
	}
	in.DiscardReport(resource, 7)
	in.AdvanceRevision(12)
	if letter := in.Peek(resource); letter.Report != nil || !letter.UnhandledSince.IsZero() || dealt(in) != 12 {
		t.Errorf("what was lost is still there: %+v, dealt with up to %d", letter, dealt(in))
	}
}
