package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestForgedElevationPermitsNothing changes a stored elevation of an engineer with the role, as somebody who can write to the database
// may. Neither an action nor an activation succeeds, and the refusal is in the audit.
func TestForgedElevationPermitsNothing(t *testing.T) {
	t.Parallel()
	const action, activation = "/clusters/" + uid + "/resume", "/activate"
	other := ""
	for name, tc := range map[string]struct {
		// request is accepted by admin; forge then changes its document.
		request, use string
		forge        func(e *database.ElevationDocument, now time.Time)
	}{
		"approved": {breakGlass, activation, func(e *database.ElevationDocument, now time.Time) {
			e.State, e.Decision = database.ElevationApproved, &database.ElevationDecision{Approved: true, Name: "approver@example.com", ObjectID: "object-of-approver", TenantID: "tenant", Time: now}
		}},
		"active": {breakGlass, action, func(e *database.ElevationDocument, now time.Time) {
			e.State, e.StartTime, e.ExpirationTime = database.ElevationActive, now, now.Add(time.Hour)
		}},
		"longer":        {strings.Replace(breakGlass, "break-glass", "operate", 1), action, func(e *database.ElevationDocument, now time.Time) { e.ExpirationTime = now.Add(24 * time.Hour) }},
		"higher class":  {strings.Replace(breakGlass, "break-glass", "operate", 1), action, func(e *database.ElevationDocument, _ time.Time) { e.Class = string(adminv1.BreakGlassAccess) }},
		"no seal":       {strings.Replace(breakGlass, "break-glass", "operate", 1), action, func(e *database.ElevationDocument, _ time.Time) { e.Seal = "" }},
		"seal of other": {strings.Replace(breakGlass, "break-glass", "operate", 1), action, func(e *database.ElevationDocument, _ time.Time) { e.Seal = other }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.populate(t)
			handler := h.another(h.db)
			other = h.stored(t, elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", "operate", 1)), http.StatusCreated).ID).Value.Seal
			e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", tc.request), http.StatusCreated)
			item := h.stored(t, e.ID)
			tc.forge(&item.Value, time.Now().UTC())
			batch := h.db.NewBatch(database.AdminPartition)
			database.Replace(batch, item)
			if err := batch.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			path := tc.use
			if path == activation {
				path = "/elevations/" + e.ID + activation
			}
			answer := ask(handler, "oncall", "", http.MethodPost, path, "")
			if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "was not written by admin") {
				t.Errorf("%d %s", answer.Code, answer.Body)
			}
			if r := h.trail.Records(t); r[len(r)-1].Code != apierror.PermissionDenied.ARMCode() {
				t.Errorf("the last record is %+v", r[len(r)-1])
			}
		})
	}
}

// TestSealIsNotShown checks that no response has the seal.
func TestSealIsNotShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler := h.another(h.db)
	answer := ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass)
	seal := h.stored(t, elevationOf(t, answer, http.StatusCreated).ID).Value.Seal
	for _, path := range []string{"/elevations", "/audit"} {
		if body := ask(handler, "oncall", "", http.MethodGet, path, "").Body.String(); seal == "" || strings.Contains(body, seal) || strings.Contains(answer.Body.String(), seal) {
			t.Errorf("%s shows the seal %q", path, seal)
		}
	}
}

// stored returns the document of an elevation.
func (h *harness) stored(t *testing.T, id string) *database.Item[database.ElevationDocument] {
	t.Helper()
	item, err := h.db.Elevations().Get(t.Context(), database.ElevationKey(id))
	if err != nil {
		t.Fatal(err)
	}
	return item
}
