package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// openTickets is a ticket validator over HTTP that answers for each ticket whether it is open. It counts these questions. test/e2e checks
// admin with the ticket validator of the local region.
type openTickets struct {
	*httptest.Server
	mu     sync.Mutex
	closed map[string]bool
	asked  map[string]int
	// validations are the other questions: whether a ticket is valid for an elevation.
	validations []ticket.Question
	// instead answers in its place; may be nil.
	instead http.HandlerFunc
}

func (o *openTickets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		ticket.Question
		Check string
	}
	_ = json.NewDecoder(r.Body).Decode(&question)
	o.mu.Lock()
	closed, instead := o.closed[question.Ticket], o.instead
	if question.Check == "open" {
		o.asked[question.Ticket]++
	} else {
		o.validations = append(o.validations, question.Question)
	}
	o.mu.Unlock()
	switch {
	case instead != nil:
		instead(w, r)
	case question.Check == "open":
		_ = json.NewEncoder(w).Encode(map[string]any{"open": !closed, "reason": "it was resolved"})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"valid": !closed, "reason": "it was resolved", "title": "etcd has no leader", "link": "https://tickets.example.com/1"})
	}
}

// answer lets a handler answer in place of the validator; nil ends that.
func (o *openTickets) answer(instead http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.instead = instead
}

// questions returns the number of questions about each ticket since the last call.
func (o *openTickets) questions() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked := o.asked
	o.asked = map[string]int{}
	return asked
}

// setClosed replaces the closed tickets.
func (o *openTickets) setClosed(tickets ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = map[string]bool{}
	for _, ticket := range tickets {
		o.closed[ticket] = true
	}
}

// away is the response of a validator that is away.
func away(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

// withTicketChecks starts a ticket validator and two replicas of admin whose policy validates the tickets of some classes.
func withTicketChecks(t *testing.T, h *harness, classes ...adminv1.AccessClass) (validator *openTickets, replicas [2]*server.Server, metrics *prometheus.Registry) {
	t.Helper()
	validator = &openTickets{asked: map[string]int{}}
	validator.Server = httptest.NewTLSServer(validator)
	t.Cleanup(validator.Close)
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("secret"), 0o600))
	h.config.Tickets = must.Get(ticket.NewHTTP(validator.URL, token, validator.Client().Transport))(t)
	for _, name := range classes {
		class := h.config.Policy.Classes[name]
		class.Ticket = elevation.TicketValidated
		h.config.Policy.Classes[name] = class
	}
	for i := range replicas {
		config := h.config
		metrics = newRegistry()
		config.Metrics = metrics
		replicas[i] = server.New(config)
	}
	return validator, replicas, metrics
}

// elevateFor elevates an engineer for a ticket.
func elevateFor(t *testing.T, handler http.Handler, engineer, ticket, more string) adminv1.Elevation {
	t.Helper()
	body := fmt.Sprintf(`{"class":"operate","reason":"the customer asked for it","ticket":%q,"duration":"1h"%s}`, ticket, more)
	return elevationOf(t, ask(handler, engineer, "", http.MethodPost, "/elevations", body), http.StatusCreated)
}

// awaitActive waits until the watcher of elevations has a number of active ones.
func (h *harness) awaitActive(t *testing.T, want int) {
	t.Helper()
	eventually.Soon(t, "the watcher has the active elevations", func() error {
		if got := len(h.config.Elevations.Active(time.Now())); got != want {
			return fmt.Errorf("it has %d, want %d", got, want)
		}
		return nil
	})
}

// round lets both replicas check the tickets at the same time.
func round(t *testing.T, replicas [2]*server.Server, at time.Time) {
	t.Helper()
	var both sync.WaitGroup
	for _, replica := range replicas {
		both.Go(func() {
			if err := replica.CheckTicketsOnce(context.Background(), at); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// TestClosedTicketEndsElevations closes a ticket of two active elevations. They end and their credentials are revoked in the name of the
// ticket validator, once although two replicas check the ticket. That of another ticket goes on. A ticket that is open again activates
// nothing, and justifies new elevations.
func TestClosedTicketEndsElevations(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	validator, replicas, _ := withTicketChecks(t, h, adminv1.Operate)
	handler := replicas[0]
	first, second, other := elevateFor(t, handler, "operator", "INC-1", ""), elevateFor(t, handler, "oncall", "INC-1", ""), elevateFor(t, handler, "oncall", "INC-2", "")
	mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody)
	h.awaitActive(t, 3)
	now := time.Now()
	shown := func(e adminv1.Elevation) adminv1.Elevation {
		t.Helper()
		return elevationOf(t, ask(handler, "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
	}
	round(t, replicas, now)
	if asked := validator.questions(); asked["INC-1"] != 1 || asked["INC-2"] != 1 {
		t.Errorf("asked %v, want one question about each ticket", asked)
	}
	validator.setClosed("INC-1")
	round(t, replicas, now.Add(elevation.TicketCheckInterval/2))
	if asked := validator.questions(); len(asked) != 0 {
		t.Errorf("asked %v before the interval was over", asked)
	}
	round(t, replicas, now.Add(elevation.TicketCheckInterval))
	if asked := validator.questions(); asked["INC-1"] != 1 || asked["INC-2"] != 1 {
		t.Errorf("asked %v, want one question about each ticket", asked)
	}
	for _, e := range []adminv1.Elevation{first, second} {
		if got := shown(e); got.State != adminv1.ElevationEnded || got.EndedBy != elevation.TicketValidator || got.EndReason != "the ticket INC-1 is closed: it was resolved" {
			t.Errorf("the elevation is %+v", got)
		}
	}
	if got := shown(other); !got.Active {
		t.Errorf("the elevation of another ticket is %+v", got)
	}
	operations := h.ofKind(t, adminv1.ActionElevationEnd)
	if credentials := shown(first).Credentials; len(operations) != 1 || len(credentials) != 1 || credentials[0].Revocation == nil || credentials[0].Revocation.OperationID != operations[0].OperationID {
		t.Fatalf("the credentials are %+v with the operations %+v", credentials, operations)
	}
	o := &operations[0]
	asked := must.Get(h.intents.Verify(t.Context(), o.Intent))(t)
	request, err := adminaction.RequestOf(o)
	if err != nil || adminaction.Check(asked, o) != nil || adminaction.CheckElevation(asked, nil, time.Now()) != nil || !asked.AllowsCall(request.Method, request.Message) {
		t.Errorf("the intent %+v does not allow %v: %v", asked, request, err)
	}
	if o.Actor.Name != elevation.TicketValidator || o.Actor.Ticket != "INC-1" || adminaction.ActorOf(asked) != o.Actor || !strings.Contains(o.Actor.Reason, "the ticket INC-1 is closed") {
		t.Errorf("the operation is %+v with the intent %+v", o, asked)
	}
	outcomes := map[string]int{}
	for _, r := range h.trail.Records(t) {
		if r.Action == adminv1.ActionElevationEnd && r.Person.Name == elevation.TicketValidator && r.Ticket == "INC-1" && strings.Contains(r.Reason, "is closed") {
			outcomes[r.Object.ID+" "+r.Outcome]++
		}
	}
	for _, e := range []adminv1.Elevation{first, second} {
		if outcomes[e.ID+" "+audit.Started] != 1 || outcomes[e.ID+" "+audit.Accepted] != 1 {
			t.Errorf("the audit has the records %v", outcomes)
		}
	}
	if answer := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/resume", ""); answer.Code != http.StatusForbidden {
		t.Errorf("an action after the end: %d: %s", answer.Code, answer.Body)
	}
	validator.setClosed()
	h.awaitActive(t, 1)
	round(t, replicas, now.Add(2*elevation.TicketCheckInterval))
	if got := shown(first); got.State != adminv1.ElevationEnded {
		t.Errorf("after the ticket was opened again: %+v", got)
	}
	if e := elevateFor(t, handler, "operator", "INC-1", ""); !e.Active {
		t.Errorf("a new elevation for the ticket is %+v", e)
	}
}

// valueOf returns the value of a gauge or counter with the value of its label, which is empty if it has none.
func valueOf(t *testing.T, metrics *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families := must.Get(metrics.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("the metric %s is missing", name)
	return 0
}

// TestUnansweredTicketEndsNothing checks tickets with a validator that is away, and with one that does not know the question. The
// elevation continues, and the metric has the time since which its ticket is unchecked. When the validator answers, it ends.
func TestUnansweredTicketEndsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	validator, replicas, metrics := withTicketChecks(t, h, adminv1.Operate)
	handler := replicas[1]
	oldest := func() float64 { t.Helper(); return valueOf(t, metrics, "admin_oldest_ticket_check_seconds", "") }
	if err := handler.CheckTicketsOnce(t.Context(), time.Now()); err != nil || oldest() != 0 {
		t.Errorf("without elevations: %v, unchecked since %v", err, oldest())
	}
	e := elevateFor(t, handler, "operator", "INC-1", "")
	h.awaitActive(t, 1)
	began := float64(e.TicketCheck.Time.Unix())
	now := time.Now()
	validator.setClosed("INC-1")
	for i, instead := range []http.HandlerFunc{away, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"valid": false, "reason": "who asks?"}`)
	}} {
		validator.answer(instead)
		if err := handler.CheckTicketsOnce(t.Context(), now.Add(time.Duration(i)*elevation.TicketCheckInterval)); err != nil {
			t.Error(err)
		}
		if shown := elevationOf(t, ask(handler, "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); !shown.Active {
			t.Errorf("answer %d: the elevation is %+v", i, shown)
		}
		if got := oldest(); got != began {
			t.Errorf("answer %d: unchecked since %v, want %v", i, got, began)
		}
	}
	if failures := valueOf(t, metrics, "admin_ticket_validations_total", "failed"); failures != 2 {
		t.Errorf("%v failed questions, want 2", failures)
	}
	if log := h.log.String(); !strings.Contains(log, "elevations continue with unchecked tickets") || !strings.Contains(log, `"since":"`+e.TicketCheck.Time.UTC().Format(time.RFC3339)) {
		t.Errorf("the log is %s", log)
	}
	validator.answer(nil)
	if err := handler.CheckTicketsOnce(t.Context(), now.Add(2*elevation.TicketCheckInterval)); err != nil {
		t.Error(err)
	}
	if shown := elevationOf(t, ask(handler, "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); shown.State != adminv1.ElevationEnded {
		t.Errorf("after the answer: %+v", shown)
	}
}

// TestUncheckedEmergencyEndsWithItsTicket elevates in an emergency while the validator is away. When it answers that the ticket is closed,
// the elevation ends.
func TestUncheckedEmergencyEndsWithItsTicket(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	validator, replicas, _ := withTicketChecks(t, h, adminv1.Operate)
	validator.setClosed("INC-1")
	validator.answer(away)
	e := elevateFor(t, replicas[0], "operator", "INC-1", `,"emergency":true`)
	if e.TicketCheck == nil || e.TicketCheck.Waived == "" || !e.Active {
		t.Fatalf("the emergency is %+v", e)
	}
	h.awaitActive(t, 1)
	validator.answer(nil)
	round(t, replicas, time.Now())
	shown := elevationOf(t, ask(replicas[0], "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
	if shown.State != adminv1.ElevationEnded || !shown.Emergency || shown.Review != nil {
		t.Errorf("the emergency is %+v", shown)
	}
}

// noRecords is an audit that stores nothing.
type noRecords struct{ audit.Recorder }

func (noRecords) Begin(context.Context, audit.Record) (audit.Action, error) {
	return nil, errors.New("the disk is full")
}

// TestUnauditedTicketEndsNothing checks that an elevation whose end cannot be audited continues, and that the next question ends it.
func TestUnauditedTicketEndsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	validator, replicas, _ := withTicketChecks(t, h, adminv1.Operate)
	e := elevateFor(t, replicas[0], "operator", "INC-1", "")
	h.awaitActive(t, 1)
	validator.setClosed("INC-1")
	config := h.config
	config.Audit, config.Metrics = noRecords{h.trail}, newRegistry()
	now := time.Now()
	if err := server.New(config).CheckTicketsOnce(t.Context(), now); err == nil || !strings.Contains(err.Error(), e.ID) {
		t.Errorf("without an audit: %v", err)
	}
	if shown := elevationOf(t, ask(replicas[0], "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); !shown.Active {
		t.Errorf("it is %+v", shown)
	}
	round(t, replicas, now.Add(elevation.TicketCheckInterval))
	if shown := elevationOf(t, ask(replicas[0], "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK); shown.State != adminv1.ElevationEnded {
		t.Errorf("it is %+v", shown)
	}
}
