package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// TestTicketIsValidatedTwice checks that the ticket system is asked at the request and at the activation, and that a ticket that was
// closed in between gives no access.
func TestTicketIsValidatedTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	system, replicas, _ := withTicketChecks(t, h, adminv1.BreakGlassAccess)
	handler := replicas[0]
	e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	if c := e.TicketCheck; c == nil || c.Title != "etcd has no leader" || c.Link != "https://tickets.example.com/1" || c.Waived != "" {
		t.Errorf("the request has the ticket check %+v", c)
	}
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+e.ID+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	system.setClosed("INC-1")
	answer := ask(handler, "oncall", "", http.MethodPost, "/elevations/"+e.ID+"/activate", "")
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `"target":"ticket"`) || !strings.Contains(answer.Body.String(), "it was resolved") {
		t.Errorf("a closed ticket: %d %s", answer.Code, answer.Body)
	}
	if shown := elevationOf(t, ask(handler, "oncall", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); shown.State != adminv1.ElevationApproved {
		t.Errorf("it is %s", shown.State)
	}
	if answer := ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass); answer.Code != http.StatusBadRequest {
		t.Errorf("a request with a closed ticket: %d %s", answer.Code, answer.Body)
	}
	system.setClosed()
	if active := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations/"+e.ID+"/activate", ""), http.StatusOK); !active.Active {
		t.Errorf("it is %s", active.State)
	}
	want := ticket.Question{Ticket: "INC-1", Engineer: "oncall@example.com", ObjectID: "object-of-oncall", Class: "break-glass"}
	for _, got := range system.validations {
		if got != want {
			t.Errorf("asked %+v, want %+v", got, want)
		}
	}
	if len(system.validations) != 4 {
		t.Errorf("asked %d times, want 4", len(system.validations))
	}
	// The policy does not validate the tickets of other classes.
	elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", "recover", 1)), http.StatusCreated)
	if len(system.validations) != 4 {
		t.Error("the ticket of another class was validated")
	}
}

// TestTicketSystemIsAway checks that nothing is granted without an answer, except in an emergency, which keeps the reason.
func TestTicketSystemIsAway(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	system, replicas, _ := withTicketChecks(t, h, adminv1.BreakGlassAccess)
	handler := replicas[0]
	e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+e.ID+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	emergency := strings.Replace(breakGlass, "{", `{"emergency":true,`, 1)
	system.setClosed("INC-1")
	if answer := ask(handler, "oncall", "", http.MethodPost, "/elevations", emergency); answer.Code != http.StatusBadRequest {
		t.Errorf("an emergency with a closed ticket: %d %s", answer.Code, answer.Body)
	}
	system.Close()
	for what, path := range map[string]string{"a request": "/elevations", "an activation": "/elevations/" + e.ID + "/activate"} {
		body := breakGlass
		if path != "/elevations" {
			body = ""
		}
		answer := ask(handler, "oncall", "", http.MethodPost, path, body)
		if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), system.URL) {
			t.Errorf("%s: %d %s", what, answer.Code, answer.Body)
		}
	}
	if shown := elevationOf(t, ask(handler, "oncall", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); shown.State != adminv1.ElevationApproved {
		t.Errorf("it is %s", shown.State)
	}
	granted := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", emergency), http.StatusCreated)
	if !granted.Active || granted.TicketCheck == nil || !strings.Contains(granted.TicketCheck.Waived, system.URL) {
		t.Errorf("the emergency is %+v", granted)
	}
}
