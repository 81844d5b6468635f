package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// ticketSystem is a ticket validator over HTTP whose tickets a test closes.
type ticketSystem struct {
	*httptest.Server
	mu     sync.Mutex
	closed bool
	asked  []ticket.Question
}

// setClosed closes or opens all tickets.
func (s *ticketSystem) setClosed(closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = closed
}

func (s *ticketSystem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var question ticket.Question
	_ = json.NewDecoder(r.Body).Decode(&question)
	s.asked = append(s.asked, question)
	_ = json.NewEncoder(w).Encode(map[string]any{"valid": !s.closed, "reason": "it is closed", "title": "etcd has no leader", "link": "https://tickets.example.com/1"})
}

// newTicketAdmin returns an admin whose policy validates the tickets of break-glass access, and its ticket system.
func newTicketAdmin(t *testing.T, h *harness) (http.Handler, *ticketSystem) {
	t.Helper()
	system := &ticketSystem{}
	system.Server = httptest.NewTLSServer(system)
	t.Cleanup(system.Close)
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("secret"), 0o600))
	validator := must.Get(ticket.NewHTTP(system.URL, token, system.Client().Transport))(t)
	class := h.config.Policy.Classes[adminv1.BreakGlassAccess]
	class.Ticket = elevation.TicketValidated
	h.config.Policy.Classes[adminv1.BreakGlassAccess] = class
	config := h.config
	config.Tickets, config.Metrics = validator, prometheus.NewRegistry()
	return server.New(config), system
}

// TestTicketIsValidatedTwice checks that the ticket system is asked at the request and at the activation, and that a ticket that was
// closed in between gives no access.
func TestTicketIsValidatedTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler, system := newTicketAdmin(t, h)
	e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	if c := e.TicketCheck; c == nil || c.Title != "etcd has no leader" || c.Link != "https://tickets.example.com/1" || c.Waived != "" {
		t.Errorf("the request has the ticket check %+v", c)
	}
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+e.ID+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	system.setClosed(true)
	answer := ask(handler, "oncall", "", http.MethodPost, "/elevations/"+e.ID+"/activate", "")
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), `"target":"ticket"`) || !strings.Contains(answer.Body.String(), "it is closed") {
		t.Errorf("a closed ticket: %d %s", answer.Code, answer.Body)
	}
	if shown := elevationOf(t, ask(handler, "oncall", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); shown.State != adminv1.ElevationApproved {
		t.Errorf("it is %s", shown.State)
	}
	if answer := ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass); answer.Code != http.StatusBadRequest {
		t.Errorf("a request with a closed ticket: %d %s", answer.Code, answer.Body)
	}
	system.setClosed(false)
	if active := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations/"+e.ID+"/activate", ""), http.StatusOK); !active.Active {
		t.Errorf("it is %s", active.State)
	}
	want := ticket.Question{Ticket: "INC-1", Engineer: "oncall@example.com", ObjectID: "object-of-oncall", Class: "break-glass"}
	for _, got := range system.asked {
		if got != want {
			t.Errorf("asked %+v, want %+v", got, want)
		}
	}
	if len(system.asked) != 4 {
		t.Errorf("asked %d times, want 4", len(system.asked))
	}
	// The policy does not validate the tickets of other classes.
	elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", "recover", 1)), http.StatusCreated)
	if len(system.asked) != 4 {
		t.Error("the ticket of another class was validated")
	}
}

// TestTicketSystemIsAway checks that nothing is granted without an answer, except in an emergency, which keeps the reason.
func TestTicketSystemIsAway(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler, system := newTicketAdmin(t, h)
	e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+e.ID+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	emergency := strings.Replace(breakGlass, "{", `{"emergency":true,`, 1)
	system.setClosed(true)
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
