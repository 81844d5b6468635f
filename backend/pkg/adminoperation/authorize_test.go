package adminoperation_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// operation returns an operation that retries a cluster, without an intent.
func operation(id string) database.AdminOperationDocument {
	now := time.Now().UTC()
	return database.AdminOperationDocument{
		OperationID: id, SortKey: database.AdminSortKey(now, id), Action: adminv1.ActionClusterRetry, State: database.AdminAccepted, StartTime: now, LastTransitionTime: now,
		Target: database.AdminTarget{Kind: "cluster", ID: "uid", ClusterUID: "uid"}, Parameters: json.RawMessage(`{"clusterUid":"uid"}`),
		Actor: database.AdminActor{Name: "alice@example.com", ObjectID: "alice", Role: "operator", Reason: "it is stuck", Ticket: "INC-1"},
	}
}

// signed returns an operation with its intent, after changes, and the elevation with which it was requested.
func (h *environment) signed(t *testing.T, id string, changes ...func(*database.AdminOperationDocument)) (database.AdminOperationDocument, database.ElevationDocument) {
	t.Helper()
	o := operation(id)
	for _, change := range changes {
		change(&o)
	}
	elevation := intenttest.Elevation(&o, time.Hour)
	h.admin.Sign(t, &o, &elevation)
	return o, elevation
}

// insert writes an operation and an elevation, as somebody with the key of the database can.
func (h *environment) insert(t *testing.T, o database.AdminOperationDocument, elevation *database.ElevationDocument) database.Key {
	t.Helper()
	batch := h.db.NewBatch(database.AdminPartition)
	if elevation != nil {
		database.Create(batch, h.db.Elevations(), database.ElevationKey(elevation.ElevationID), *elevation)
	}
	database.Create(batch, h.db.AdminOperations(), database.AdminOperationKey(o.OperationID), o)
	must.Do(t, batch.Commit(t.Context()))
	return database.AdminOperationKey(o.OperationID)
}

// TestForgedOperationsAreRefused inserts operations that admin did not accept. Each fails without a call of Cluster Service, names
// nobody as its engineer, and is audited and counted.
func TestForgedOperationsAreRefused(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	for name, tc := range map[string]struct {
		reason string
		// forge changes an operation that is signed by h.admin.
		forge func(o *database.AdminOperationDocument, elevation *database.ElevationDocument)
		want  string
	}{
		"unsigned": {"the document alone authorizes nothing", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) { o.Intent = "" }, intent.ReasonMissing},
		"signed by another": {"only admin signs", func(o *database.AdminOperationDocument, e *database.ElevationDocument) {
			intenttest.New(t).Sign(t, o, e)
		}, intent.ReasonInvalid},
		"other operation": {"an intent is for one operation", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) { o.OperationID += "-again" }, intent.ReasonInvalid},
		"other action": {"an intent is for one action", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) {
			o.Action = adminv1.ActionClusterPause
		}, intent.ReasonInvalid},
		"other target": {"an intent is for one target", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) { o.Target.ClusterUID = "other" }, intent.ReasonInvalid},
		"other parameters": {"an intent is for its parameters", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) {
			o.Parameters = json.RawMessage(`{"clusterUid":"other"}`)
		}, intent.ReasonInvalid},
		"not a signed text":  {"any text is no intent", func(o *database.AdminOperationDocument, _ *database.ElevationDocument) { o.Intent = "a.b.c" }, intent.ReasonInvalid},
		"elevation of other": {"the elevation is the engineer's", func(_ *database.AdminOperationDocument, e *database.ElevationDocument) { e.Actor.ObjectID = "mallory" }, intent.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			before := testutil.ToFloat64(h.refused(t, tc.want))
			o, elevation := h.signed(t, strings.ReplaceAll(name, " ", "-"))
			tc.forge(&o, &elevation)
			ended := h.await(t, h.insert(t, o, &elevation), database.AdminFailed)
			if ended.Error == nil || ended.Error.Code != apierror.PermissionDenied.ARMCode() {
				t.Errorf("%s: the error is %+v", tc.reason, ended.Error)
			}
			if name != "elevation of other" && ended.Actor != (database.AdminActor{}) {
				t.Errorf("%s: the operation names %+v", tc.reason, ended.Actor)
			}
			if after := testutil.ToFloat64(h.refused(t, tc.want)); after != before+1 {
				t.Errorf("%s: %v operations were counted with reason %s, want %v", tc.reason, after, tc.want, before+1)
			}
		})
	}
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	if h.fleet.calls != 0 {
		t.Errorf("Cluster Service received %d calls", h.fleet.calls)
	}
}

// TestElevationMustBeActiveAtExecution checks that an accepted operation is not executed after the end of its elevation. The
// record names the engineer, who did request it.
func TestElevationMustBeActiveAtExecution(t *testing.T) {
	for name, end := range map[string]func(e *database.ElevationDocument){
		"ended":         func(e *database.ElevationDocument) { now := time.Now().UTC(); e.EndTime = &now },
		"not approved":  func(e *database.ElevationDocument) { e.State = database.ElevationRequested },
		"not activated": func(e *database.ElevationDocument) { e.State = database.ElevationApproved },
		"expired":       func(e *database.ElevationDocument) { e.ExpirationTime = time.Now().UTC().Add(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnvironment(t)
			o, elevation := h.signed(t, "one")
			end(&elevation)
			key := h.insert(t, o, &elevation)
			h.run(t, adminoperation.Options{})
			ended := h.await(t, key, database.AdminFailed)
			if ended.Actor.ObjectID != "alice" || ended.Error.Code != apierror.PermissionDenied.ARMCode() || h.fleet.calls != 0 {
				t.Errorf("%+v by %+v after %d calls", ended.Error, ended.Actor, h.fleet.calls)
			}
		})
	}
}

// TestRetriesEndWithElevation ends the elevation after an attempt whose response was lost. The operation fails, and its error states
// that the attempt may have had its effect.
func TestRetriesEndWithElevation(t *testing.T) {
	h := newEnvironment(t)
	o, elevation := h.signed(t, "one")
	h.fleet.respond = func(int) error {
		item, err := h.db.Elevations().Get(t.Context(), database.ElevationKey(elevation.ElevationID))
		if err == nil && item.Value.EndTime == nil {
			now := time.Now().UTC()
			item.Value.EndTime = &now
			batch := h.db.NewBatch(database.AdminPartition)
			database.Replace(batch, item)
			err = batch.Commit(t.Context())
		}
		return errors.Join(err, apierror.New(apierror.Unavailable, "The response is lost."))
	}
	h.run(t, adminoperation.Options{})
	ended := h.await(t, h.insert(t, o, &elevation), database.AdminFailed)
	if ended.Attempts != 2 || h.fleet.effects["one"] != 1 || !strings.Contains(ended.Error.Message, "1 attempts did not report their outcome") {
		t.Errorf("%d attempts with %d effects: %+v", ended.Attempts, h.fleet.effects["one"], ended.Error)
	}
}

// unverifiable is a verifier that cannot fetch the keys while it is set.
type unverifiable struct {
	adminoperation.IntentVerifier
	away atomic.Bool
}

func (u *unverifiable) Verify(ctx context.Context, signed string) (*intent.Intent, error) {
	if u.away.Swap(false) {
		return nil, apierror.New(apierror.Unavailable, "The keys cannot be fetched.").WithReason(intent.ReasonUnverifiable)
	}
	return u.IntentVerifier.Verify(ctx, signed)
}

// TestUnverifiableIntentIsRetried checks that an operation does not fail because the keys of admin cannot be fetched.
func TestUnverifiableIntentIsRetried(t *testing.T) {
	h := newEnvironment(t)
	verifier := &unverifiable{IntentVerifier: h.admin.Verifier}
	verifier.away.Store(true)
	h.runWith(t, verifier, adminoperation.Options{})
	if o := h.await(t, h.request(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminSucceeded); o.Attempts != 2 {
		t.Errorf("%d attempts, want 2", o.Attempts)
	}
}
