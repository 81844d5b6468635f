package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// TestClosedTicketGivesNoAccess checks that the region's ticket validator is asked again when an approved request is activated, and while
// an elevation is active. It ends the active elevation of a ticket that was closed.
func TestClosedTicketGivesNoAccess(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	ctx := withTimeout(t, 5*time.Minute)
	oncall, approver := engineer(t, "oncall"), engineer(t, "approver")
	ask := func(ticket string) (*adminv1.Elevation, error) {
		return oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.BreakGlassAccess, Reason: "every console is silent", Ticket: ticket, Duration: "10m"})
	}
	invalid := func(what string, err error) {
		t.Helper()
		var answered *adminclient.Error
		if !errors.As(err, &answered) || answered.Status != http.StatusBadRequest || answered.Detail.Target != "ticket" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := ask("it is urgent")
	invalid("a ticket that does not exist", err)
	request := must.Get(ask("INC-404"))(t)
	active := must.Get(ask("INC-404"))(t)
	for _, id := range []string{request.ID, active.ID} {
		must.Get(approver.ApproveElevation(ctx, id, "agreed in the incident call"))(t)
	}
	if active, err = oncall.ActivateElevation(ctx, active.ID); err != nil || !active.Active {
		t.Fatalf("the elevation is %+v: %v", active, err)
	}
	closed := filepath.Join(filepath.Dir(region.Endpoints().EngineersFile), "closed-tickets")
	must.Do(t, os.WriteFile(closed, []byte("INC-404\n"), 0o600))
	_, err = oncall.ActivateElevation(ctx, request.ID)
	invalid("a ticket that was closed after the approval", err)
	if _, err := oncall.EndElevation(ctx, request.ID); err != nil {
		t.Error(err)
	}
	eventually.Before(ctx, t, "the ticket validator ends the active elevation", func() error {
		shown, err := adminclient.Get(ctx, oncall, adminv1.ReadElevation, nil, active.ID)
		if err != nil {
			return err
		}
		if shown.State != adminv1.ElevationEnded || shown.EndedBy != "ticket validator" || shown.EndReason != "the ticket INC-404 is closed: it is closed" {
			return fmt.Errorf("it is %+v", shown)
		}
		return nil
	})
	awaitAudit(t, "the sink has the end in the name of the ticket validator", func(records map[string][]audit.Record) error {
		for _, r := range records["admin"] {
			if r.Object.ID == active.ID && r.Action == adminv1.ActionElevationEnd && r.Outcome == audit.Accepted && r.Person.Name == "ticket validator" && r.Ticket == "INC-404" {
				return nil
			}
		}
		return errors.New("the record is missing")
	})
}

// TestSecondEngineerApprovesBreakGlass checks that break-glass access to all clusters waits for another engineer, that nobody
// approves their own request, that the waiting engineer is notified, that the access ends when it is ended, and that each step is
// in the audit chain.
func TestSecondEngineerApprovesBreakGlass(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	ctx := withTimeout(t, 3*time.Minute)
	oncall, approver := engineer(t, "oncall"), engineer(t, "approver")
	refused := func(what string, status int, err error) {
		t.Helper()
		var answered *adminclient.Error
		if !errors.As(err, &answered) || answered.Status != status {
			t.Errorf("%s: %v, want status %d", what, err, status)
		}
	}
	request, err := oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.BreakGlassAccess, Reason: "every console is silent", Ticket: "INC-77", Duration: "10m"})
	if err != nil || request.State != adminv1.ElevationRequested {
		t.Fatalf("the request is %+v: %v", request, err)
	}
	_, err = oncall.ActivateElevation(ctx, request.ID)
	refused("activating without an approval", http.StatusConflict, err)
	_, err = oncall.ApproveElevation(ctx, request.ID, "it is surely fine")
	refused("approving the own request", http.StatusForbidden, err)
	type outcome struct {
		elevation *adminv1.Elevation
		err       error
	}
	decided := make(chan outcome, 1)
	go func() {
		elevation, err := oncall.AwaitDecision(ctx, request)
		decided <- outcome{elevation, err}
	}()
	if _, err := approver.ApproveElevation(ctx, request.ID, "agreed in the incident call"); err != nil {
		t.Error(err)
	}
	if got := <-decided; got.err != nil || got.elevation.State != adminv1.ElevationApproved || got.elevation.Decision.Name != "approver@hcpmesh.local" {
		t.Errorf("the waiting engineer got %+v: %v", got.elevation, got.err)
	}
	active, err := oncall.ActivateElevation(ctx, request.ID)
	if err != nil || !active.Active {
		t.Fatalf("the elevation is %+v: %v", active, err)
	}
	ended, err := approver.EndElevation(ctx, request.ID)
	if err != nil || ended.Active || ended.EndedBy != "approver@hcpmesh.local" {
		t.Errorf("the elevation is %+v: %v", ended, err)
	}
	awaitAudit(t, "the sink has each step", func(records map[string][]audit.Record) error {
		missing := map[string]string{"elevations.create": "oncall", "elevations.approve": "approver", "elevations.activate": "oncall", "elevations.end": "approver"}
		selfApproval := errors.New("the refused approval of the own request is missing")
		for _, r := range records["admin"] {
			if r.Object.ID != request.ID {
				continue
			}
			if r.Outcome == audit.Accepted && r.Person.Name == missing[r.Action]+"@hcpmesh.local" && r.Ticket == "INC-77" {
				delete(missing, r.Action)
			}
			if r.Outcome == audit.Refused && r.Action == "elevations.approve" && r.Person.Name == "oncall@hcpmesh.local" {
				selfApproval = nil
			}
		}
		if len(missing) > 0 {
			return errors.Join(selfApproval, errors.New("records are missing"))
		}
		return selfApproval
	})
}
