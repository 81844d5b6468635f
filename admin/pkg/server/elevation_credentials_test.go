package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// credentialBody is the body of a request for a credential.
const credentialBody = `{"certificateSigningRequest":"csr"}`

// ofKind returns the stored operations of an action.
func (h *harness) ofKind(t *testing.T, action string) []database.AdminOperationDocument {
	t.Helper()
	records, _, err := h.db.AdminRecords(t.Context(), database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var found []database.AdminOperationDocument
	for _, r := range records {
		if o := r.Operation.Value; o.Action == action {
			found = append(found, o)
		}
	}
	return found
}

// elevated elevates the engineer operator and returns the elevation.
func (h *harness) elevated(t *testing.T, handler http.Handler) adminv1.Elevation {
	t.Helper()
	return elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", `{"class":"operate","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`), http.StatusCreated)
}

// TestEndRevokesCredentials ends an elevation with which credentials for a cluster were requested. One operation revokes them, with the
// signed intent of the engineer who ended it, also if the end is repeated.
func TestEndRevokesCredentials(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	e := h.elevated(t, handler)
	for range 2 {
		mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody)
	}
	shown := elevationOf(t, ask(handler, "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
	if len(shown.Credentials) != 1 || shown.Credentials[0].Cluster.UID != uid || shown.Credentials[0].Revocation != nil || !shown.Active {
		t.Errorf("the elevation is %+v", shown)
	}
	for range 2 {
		shown = elevationOf(t, ask(handler, "oncall", "", http.MethodDelete, "/elevations/"+e.ID, ""), http.StatusOK)
	}
	operations := h.ofKind(t, adminv1.ActionElevationEnd)
	if len(operations) != 1 || len(shown.Credentials) != 1 || shown.Credentials[0].Revocation == nil || shown.Credentials[0].Revocation.OperationID != operations[0].OperationID {
		t.Fatalf("the elevation is %+v with the operations %+v", shown, operations)
	}
	o := &operations[0]
	asked := must.Get(h.intents.Verify(t.Context(), o.Intent))(t)
	request, err := adminaction.RequestOf(o)
	if err != nil || adminaction.Check(asked, o) != nil || !asked.AllowsCall(request.Method, request.Message) {
		t.Errorf("the intent %+v does not allow %v: %v", asked, request, err)
	}
	want := &clusterservicev1.RevokeBreakGlassCredentialsRequest{Uid: o.OperationID, ClusterUid: uid, Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Elevation: e.ID,
		Requester: "oncall@example.com", Reason: "INC-1: the elevation " + e.ID + " of operator@example.com was ended"}
	if got, ok := request.Message.(*clusterservicev1.RevokeBreakGlassCredentialsRequest); !ok || got.String() != want.String() {
		t.Errorf("the request is %v, want %v", request.Message, want)
	}
	if o.Target.ClusterUID != uid || o.State != database.AdminAccepted || adminaction.ActorOf(asked) != o.Actor || asked.ObjectID != "object-of-oncall" {
		t.Errorf("the operation is %+v with the intent %+v", o, asked)
	}
	if h.recorded(t, func(r audit.Record) bool {
		return r.Action == "elevations.end" && r.Object.ID == e.ID && r.Outcome == audit.Accepted && r.Person.Name == "oncall@example.com"
	}) == 0 {
		t.Error("the audit has no record of the end")
	}
	if answer := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody); answer.Code != http.StatusForbidden {
		t.Errorf("after the end: %d: %s", answer.Code, answer.Body)
	}
	// An elevation without credentials has nothing to revoke.
	other := h.elevated(t, handler)
	mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/resume", "")
	if shown := elevationOf(t, ask(handler, "operator", "", http.MethodDelete, "/elevations/"+other.ID, ""), http.StatusOK); shown.Credentials != nil || len(h.ofKind(t, adminv1.ActionElevationEnd)) != 1 {
		t.Errorf("an elevation without credentials: %+v", shown)
	}
}

// TestEndRacesWithCredential ends an elevation while a credential is requested with it. A credential that was accepted is revoked.
func TestEndRacesWithCredential(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	for i := range 10 {
		e := h.elevated(t, handler)
		accepted := false
		var both sync.WaitGroup
		both.Go(func() {
			accepted = ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody).Code == http.StatusAccepted
		})
		both.Go(func() {
			if answer := ask(handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, ""); answer.Code != http.StatusOK {
				t.Errorf("round %d: the elevation cannot be ended: %d %s", i, answer.Code, answer.Body)
			}
		})
		both.Wait()
		shown := elevationOf(t, ask(handler, "operator", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
		revoked := len(shown.Credentials) == 1 && shown.Credentials[0].Revocation != nil
		if shown.State != adminv1.ElevationEnded || accepted != revoked {
			t.Errorf("round %d: accepted %t, revoked %t: %+v", i, accepted, revoked, shown)
		}
	}
}

// TestSweepEndOfElevation kills admin before and after each of its writes while an engineer requests a credential and ends the elevation,
// and repeats unanswered requests. Afterwards, the elevation has ended and one operation revokes its credentials.
func TestSweepEndOfElevation(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		h := newPopulated(t)
		admin := h.startCrashing(t, d)
		e := h.elevated(t, h.another(h.db))
		for _, r := range []struct {
			key, method, path, body string
			status                  int
		}{{"key", http.MethodPost, "/clusters/" + uid + "/credentials", credentialBody, http.StatusAccepted}, {"", http.MethodDelete, "/elevations/" + e.ID, "", http.StatusOK}} {
			if answer, _ := admin.Send(func() *http.Request { return requestOf("operator", r.key, r.method, r.path, r.body) }); answer.Code != r.status {
				t.Fatalf("%s: %d %s", r.path, answer.Code, answer.Body)
			}
		}
		shown := elevationOf(t, ask(h.another(h.db), "operator", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
		return []any{h.began(t), shown.State, len(shown.Credentials)}
	})
}

// TestRevocationHasProgress checks what an ended elevation shows while its credentials are revoked, in each situation.
func TestRevocationHasProgress(t *testing.T) {
	t.Parallel()
	since := timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))
	fleet := func(state clusterservicev1.BreakGlassRevocationState, progress ...string) func(*harness, *database.AdminOperationDocument) {
		return func(h *harness, o *database.AdminOperationDocument) {
			o.End(database.AdminSucceeded, nil, time.Now())
			v := &clusterservicev1.BreakGlassRevocation{Uid: o.OperationID, ClusterUid: uid, Status: &clusterservicev1.BreakGlassRevocationStatus{State: state}}
			for _, p := range progress {
				layer, rest, _ := strings.Cut(p, " ")
				name, message, _ := strings.Cut(rest, " ")
				v.Status.Progress = append(v.Status.Progress, &clusterservicev1.LayerProgress{Layer: layer, State: name, Message: message, Since: since})
			}
			h.fleet.revocations = append(h.fleet.revocations, v)
		}
	}
	const revoking, succeeded, failed, canceled = clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING, clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED,
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED, clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED
	for name, tc := range map[string]struct {
		reason string
		happen func(h *harness, o *database.AdminOperationDocument)
		// past moves the end of the elevation an hour back.
		past    bool
		state   adminv1.RevocationState
		message string
	}{
		"accepted":  {"the backend is away", func(*harness, *database.AdminOperationDocument) {}, false, adminv1.RevocationRequested, "The backend has not executed"},
		"attempted": {"Cluster Service is away", func(_ *harness, o *database.AdminOperationDocument) { o.State, o.Attempts = database.AdminRunning, 7 }, false, adminv1.RevocationRequested, "in 7 attempts"},
		"refused": {"the action has failed", func(_ *harness, o *database.AdminOperationDocument) {
			o.End(database.AdminFailed, &database.OperationError{Message: "The cluster does not exist."}, time.Now())
		}, false, adminv1.RevocationFailed, "The cluster does not exist."},
		"management cluster is away": {"the first layer that has not done its part is named", fleet(revoking, "maestro Published Maestro accepted it.", "management-cluster Waiting Waiting for the agent.", "control-plane Waiting Waiting for a start."),
			false, adminv1.RevocationRevoking, "Waiting for the agent. (since 2026-03-14T15:09:26Z)"},
		"control plane": {"the other layers have done their part", fleet(revoking, "maestro Published Maestro accepted it.", "management-cluster Applied It is applied.", "control-plane AwaitingX Waiting for pods."),
			false, adminv1.RevocationRevoking, "Waiting for pods. (since"},
		"revoked":          {"the API server rejects the certificates", fleet(succeeded, "control-plane Revoked It is done."), false, adminv1.RevocationRevoked, ""},
		"revoked long ago": {"that stays visible", fleet(succeeded), true, adminv1.RevocationRevoked, ""},
		"rejected":         {"the certificates work until they expire", fleet(failed, "control-plane Failed The control plane refuses it."), false, adminv1.RevocationFailed, "The control plane refuses it. (since"},
		"cluster goes":     {"its API server still runs", fleet(canceled), false, adminv1.RevocationRevoking, "The cluster is being deleted."},
		"forgotten":        {"Cluster Service deletes its records", func(_ *harness, o *database.AdminOperationDocument) { o.End(database.AdminSucceeded, nil, time.Now()) }, true, adminv1.RevocationExpired, ""},
		"failed long ago":  {"no certificate is valid any more", fleet(failed), true, adminv1.RevocationExpired, ""},
		"no Cluster Service": {"its state is not known", func(h *harness, o *database.AdminOperationDocument) {
			o.End(database.AdminSucceeded, nil, time.Now())
			h.fleet.fail = func(context.Context) error {
				return apierror.ToGRPC(apierror.New(apierror.Unavailable, "The database cannot be reached."), "test")
			}
		}, false, adminv1.RevocationUnknown, "The database cannot be reached."},
	} {
		t.Run(name, func(t *testing.T) {
			h := newPopulated(t)
			handler := h.another(h.db)
			e := h.elevated(t, handler)
			mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody)
			ended := elevationOf(t, ask(handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, ""), http.StatusOK)
			if r := ended.Credentials[0].Revocation; r.State != adminv1.RevocationRequested || r.AcceptedUntil.Sub(*ended.EndTime) != 16*time.Minute {
				t.Errorf("the revocation begins as %+v", r)
			}
			operation := must.Get(h.db.AdminOperations().Get(t.Context(), database.AdminOperationKey(ended.Credentials[0].Revocation.OperationID)))(t)
			tc.happen(h, &operation.Value)
			batch := h.db.NewBatch(database.AdminPartition)
			database.Replace(batch, operation)
			if tc.past {
				item := must.Get(h.db.Elevations().Get(t.Context(), database.ElevationKey(e.ID)))(t)
				before := item.Value.EndTime.Add(-time.Hour)
				item.Value.EndTime = &before
				database.Replace(batch, item)
			}
			must.Do(t, batch.Commit(t.Context()))
			shown := elevationOf(t, ask(handler, "reader", "", http.MethodGet, "/elevations/"+e.ID, ""), http.StatusOK)
			var list adminv1.ElevationList
			if err := json.Unmarshal(ask(handler, "reader", "", http.MethodGet, "/elevations", "").Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
				t.Fatalf("%v: %+v", err, list)
			}
			for where, r := range map[string]*adminv1.ElevationRevocation{"alone": shown.Credentials[0].Revocation, "in the list": list.Items[0].Credentials[0].Revocation} {
				want := tc.state
				if tc.past && where == "in the list" {
					want = adminv1.RevocationExpired // lists do not ask
				}
				if r.State != want || !strings.Contains(r.Message, tc.message) || tc.message == "" && r.Message != "" {
					t.Errorf("%s: %s: %+v, want %s: %s", tc.reason, where, r, want, tc.message)
				}
			}
		})
	}
}

// TestClustersOfElevationAreBounded requests a credential with an elevation that has as many as one batch can revoke.
func TestClustersOfElevationAreBounded(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	e := h.elevated(t, handler)
	item := must.Get(h.db.Elevations().Get(t.Context(), database.ElevationKey(e.ID)))(t)
	for i := range 50 {
		item.Value.Credentials = append(item.Value.Credentials, database.ElevationCredentials{ClusterUID: fmt.Sprint("cluster-", i), ResourceID: "/subscriptions/" + strings.Repeat("x", 300)})
	}
	must.Do(t, h.config.Seals.Seal(&item.Value))
	replace(t, h, item)
	if answer := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", credentialBody); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "Request another elevation") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	mustAsk(t, http.StatusOK, handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, "")
	clusters := map[string]bool{}
	for _, o := range h.ofKind(t, adminv1.ActionElevationEnd) {
		clusters[o.Target.ClusterUID] = true
	}
	if diff := cmp.Diff(50, len(clusters)); diff != "" {
		t.Errorf("clusters whose credentials are revoked (-want +got):\n%s", diff)
	}
}
