package server_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
			h := newPopulated(t)
			handler := h.another(h.db)
			other = h.stored(t, elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", "operate", 1)), http.StatusCreated).ID).Value.Seal
			e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", tc.request), http.StatusCreated)
			forged := h.stored(t, e.ID).Value
			tc.forge(&forged, time.Now().UTC())
			h.overwrite(t, forged)
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

// TestElevationSetBackPermitsNothing stores each earlier state of an elevation that has ended, with the seal of admin, as somebody who can write to the
// database may. It permits nothing at the replica that ended it, at one that only read the change, and at one that started after the end. Each such
// change is counted.
func TestElevationSetBackPermitsNothing(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	id := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated).ID
	states := []*database.Item[database.ElevationDocument]{h.stored(t, id)}
	for _, step := range []struct{ who, method, path, body string }{
		{"approver", http.MethodPost, "/approve", `{"reason":"agreed in the call"}`}, {"oncall", http.MethodPost, "/activate", ""}, {"oncall", http.MethodDelete, "", ""},
	} {
		elevationOf(t, ask(handler, step.who, "", step.method, "/elevations/"+id+step.path, step.body), http.StatusOK)
		states = append(states, h.stored(t, id))
	}
	later := h.config
	later.Seals, later.Metrics = h.sealer(t), newRegistry()
	later.Elevations = elevation.NewWatcher(h.db, later.Seals, fastFeed, slog.New(slog.DiscardHandler), newRegistry())
	t.Cleanup(run(later.Elevations))
	replicas := map[string]http.Handler{"the replica that ended it": handler, "a replica that started after the end": server.New(later)}
	eventually.Soon(t, "the later replica has read the elevations", func() error {
		if later.Seals.Verify(&states[0].Value) == nil {
			return errors.New("it accepts the request")
		}
		return nil
	})
	for n, earlier := range states[:3] {
		h.overwrite(t, earlier.Value)
		for replica, handler := range replicas {
			for path, who := range map[string]string{"/elevations/" + id + "/approve": "approver", "/elevations/" + id + "/activate": "oncall", "/clusters/" + uid + "/resume": "oncall"} {
				body := ""
				if who == "approver" {
					body = `{"reason":"agreed in the call"}`
				}
				if answer := ask(handler, who, "", http.MethodPost, path, body); answer.Code/100 != 4 {
					t.Errorf("%s at %s in the state %s: %d %s", path, replica, earlier.Value.State, answer.Code, answer.Body)
				}
			}
		}
		eventually.Soon(t, "the change is counted", func() error {
			if got := valueOf(t, h.metrics, "admin_elevations_refused_total", "set-back"); got < float64(n+1) {
				return fmt.Errorf("%v of %d", got, n+1)
			}
			return nil
		})
	}
	if got := valueOf(t, h.metrics, "admin_elevations_refused_total", "unverified"); got != 0 {
		t.Errorf("%v changes are not verified", got)
	}
}

// TestChangedElevationHidesNoOther stores an earlier state, and another content, of the newest elevation of an engineer. The older one permits the action. When that has
// ended, the refusal names the changed one. The changed ones do not count towards the open elevations of the engineer.
func TestChangedElevationHidesNoOther(t *testing.T) {
	t.Parallel()
	const action = "/clusters/" + uid + "/resume"
	operate := strings.Replace(breakGlass, "break-glass", "operate", 1)
	for name, tc := range map[string]struct {
		change func(before database.ElevationDocument) database.ElevationDocument
		status int
	}{
		"set back": {func(before database.ElevationDocument) database.ElevationDocument { return before }, http.StatusConflict},
		"forged": {func(before database.ElevationDocument) database.ElevationDocument {
			before.Actor.Reason = "another reason"
			return before
		}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPopulated(t)
			handler := h.another(h.db)
			other := elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", operate), http.StatusCreated)
			var changed string
			for range 20 { // the maximum of open elevations
				e := elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", operate), http.StatusCreated)
				before := h.stored(t, e.ID).Value
				elevationOf(t, ask(handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, ""), http.StatusOK)
				h.overwrite(t, tc.change(before))
				changed = e.ID
			}
			if answer := ask(handler, "operator", "", http.MethodPost, action, ""); answer.Code != http.StatusAccepted {
				t.Errorf("the action with the other elevation: %d %s", answer.Code, answer.Body)
			}
			elevationOf(t, ask(handler, "operator", "", http.MethodDelete, "/elevations/"+other.ID, ""), http.StatusOK)
			if answer := ask(handler, "operator", "", http.MethodPost, action, ""); answer.Code != tc.status || !strings.Contains(answer.Body.String(), changed) {
				t.Errorf("the action without another elevation: %d %s, want %d that names %s", answer.Code, answer.Body, tc.status, changed)
			}
			elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", operate), http.StatusCreated)
		})
	}
}

// TestCredentialStaysInElevation stores the state of an elevation before a credential was requested with it. The elevation does not end without the revocation
// of the credential.
func TestCredentialStaysInElevation(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	e := h.elevated(t, handler)
	before := h.stored(t, e.ID).Value
	mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody)
	after := h.stored(t, e.ID).Value
	h.overwrite(t, before)
	if answer := ask(handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, ""); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "earlier state") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	h.overwrite(t, after)
	if shown := elevationOf(t, ask(handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, ""), http.StatusOK); len(shown.Credentials) != 1 || shown.Credentials[0].Revocation == nil {
		t.Errorf("the elevation is %+v", shown)
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
	return must.Get(h.db.Elevations().Get(t.Context(), database.ElevationKey(id)))(t)
}

// overwrite stores a document of an elevation, as somebody who can write to the database may.
func (h *harness) overwrite(t *testing.T, e database.ElevationDocument) {
	t.Helper()
	item, batch := h.stored(t, e.ElevationID), h.db.NewBatch(database.AdminPartition)
	item.Value = e
	database.Replace(batch, item)
	must.Do(t, batch.Commit(t.Context()))
}
