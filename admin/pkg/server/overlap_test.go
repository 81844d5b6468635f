package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// heldRecorder holds the requests that wait for the beginning of their action.
type heldRecorder struct {
	audit.Recorder
	// waits receives a value when a request waits, results has the result of its wait; nil for that of the recorder.
	waits   chan struct{}
	results chan error
}

func (h *heldRecorder) Begin(ctx context.Context, r audit.Record) (audit.Action, error) {
	action, err := h.Recorder.Begin(ctx, r)
	return &heldAction{action, h}, err
}

type heldAction struct {
	audit.Action
	held *heldRecorder
}

func (a *heldAction) Durable(ctx context.Context) error {
	a.held.waits <- struct{}{}
	if err := <-a.held.results; err != nil {
		return err
	}
	return a.Action.Durable(ctx)
}

// TestChangesWaitForTheBeginning holds the record of the beginning: admin validates the request meanwhile, and writes nothing before the
// record is durable.
func TestChangesWaitForTheBeginning(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	held := &heldRecorder{Recorder: h.trail, waits: make(chan struct{}), results: make(chan error)}
	config := h.config
	config.Audit, config.Metrics = held, prometheus.NewRegistry()
	handler := server.New(config)
	before := len(h.began(t))
	pause := func(result error) *httptest.ResponseRecorder {
		t.Helper()
		answers := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			answers <- ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"1h"}`)
		}()
		<-held.waits
		if got := h.began(t); len(got) != before {
			t.Errorf("operations were stored before the record was durable: %v", got)
		}
		held.results <- result
		return <-answers
	}
	if got := pause(apierror.New(apierror.Unavailable, "The request was rejected because it cannot be audited.")); got.Code != http.StatusServiceUnavailable {
		t.Errorf("without a record: %d %s", got.Code, got.Body)
	}
	if got := h.began(t); len(got) != before {
		t.Errorf("operations were stored without a record: %v", got)
	}
	// A request that is rejected has no effect, and needs nothing from Durable.
	if got := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"x"}`); got.Code != http.StatusBadRequest {
		t.Errorf("an invalid request: %d %s", got.Code, got.Body)
	}
	if got := pause(nil); got.Code != http.StatusAccepted {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := h.began(t); len(got) != before+1 {
		t.Errorf("the operations are %v", got)
	}
	h.trail.Verify(t)
}

// panicRecorder lets the handlers panic that wait for the beginning of their action.
type panicRecorder struct{ audit.Recorder }

func (p panicRecorder) Begin(ctx context.Context, r audit.Record) (audit.Action, error) {
	action, err := p.Recorder.Begin(ctx, r)
	return panicAction{action}, err
}

type panicAction struct{ audit.Action }

func (panicAction) Durable(context.Context) error { panic("a bug") }

// TestPanicHasAnOutcome lets the handler of a change panic: its action does not stay open.
func TestPanicHasAnOutcome(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	config := h.config
	config.Audit, config.Metrics = panicRecorder{h.trail}, prometheus.NewRegistry()
	handler := server.New(config)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the handler did not panic")
			}
		}()
		ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"1h"}`)
	}()
	var outcomes []string
	for _, r := range h.trail.Records(t) {
		if r.Action == "clusters.pause" {
			outcomes = append(outcomes, r.Outcome)
		}
	}
	if want := []string{audit.Started, audit.Failed}; !slices.Equal(outcomes, want) {
		t.Errorf("the outcomes are %v", outcomes)
	}
	if report := h.trail.Verify(t); report.Chains[0].Open != 0 {
		t.Errorf("the chain is %+v", report.Chains[0])
	}
}
