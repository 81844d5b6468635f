package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestExcludedDependenciesAreNotChecked asks with parameters as the probes of charts do.
func TestExcludedDependenciesAreNotChecked(t *testing.T) {
	p := New("test", slog.New(slog.DiscardHandler))
	p.Ready("cosmos-db", func(context.Context) error {
		return errors.New("unreachable")
	})
	p.Ready("authentication", func(context.Context) error { return nil })
	all := []string{"authentication", "cosmos-db"}
	for query, want := range map[string]Readiness{
		"":                            {NotReady: map[string]string{"cosmos-db": "unreachable"}, Dependencies: all},
		"?exclude=cosmos-db":          {Ready: true, Dependencies: all},
		"?exclude=authentication":     {NotReady: map[string]string{"cosmos-db": "unreachable"}, Dependencies: all},
		"?exclude=cosmosdb":           {NotReady: map[string]string{"cosmosdb": errUnknownDependency.Error(), "cosmos-db": "unreachable"}, Dependencies: all},
		"?exclude=cosmos-db&exclude=": {NotReady: map[string]string{"": errUnknownDependency.Error()}, Dependencies: all},
		"?exclude=cosmos-db&exclude=authentication": {Ready: true, Dependencies: all},
	} {
		recorder := httptest.NewRecorder()
		p.OpsHandler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz"+query, nil))
		var got Readiness
		must.Do(t, json.NewDecoder(recorder.Body).Decode(&got))
		status := http.StatusServiceUnavailable
		if want.Ready {
			status = http.StatusOK
		}
		if diff := cmp.Diff(want, got); diff != "" || recorder.Code != status {
			t.Errorf("/readyz%s: status %d, body (-want +got):\n%s", query, recorder.Code, diff)
		}
	}
}

// TestDrainCannotBeExcluded checks that a draining process is not ready whatever the probe excludes.
func TestDrainCannotBeExcluded(t *testing.T) {
	p := New("test", slog.New(slog.DiscardHandler))
	p.Ready("cosmos-db", func(context.Context) error { return nil })
	begun := make(chan struct{})
	close(begun)
	p.drain = &drain{begun: begun}
	if got := p.CheckReadiness(t.Context(), "cosmos-db", drainReason); got.Ready {
		t.Errorf("%+v", got)
	}
}
