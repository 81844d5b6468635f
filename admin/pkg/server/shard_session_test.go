package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const sessionsOfShard = "/shards/mgmt-1/access-sessions"

// shardSession returns the stored session for a management cluster.
func (h *harness) shardSession(t *testing.T, id string) *database.AccessSessionDocument {
	t.Helper()
	item := must.Get(h.db.AccessSessions().Get(t.Context(), (&database.AccessSessionDocument{Shard: "mgmt-1", SessionID: id}).Key()))(t)
	return &item.Value
}

// TestSessionForManagementCluster requests a session, repeats the request, and ends the elevation. The session has no key and no intent, which the backend
// adds. The end of the elevation ends the session, and has an operation that ends sessions which admin did not end.
func TestSessionForManagementCluster(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	e := h.elevated(t, handler)
	accepted := operationOf(t, ask(handler, "operator", "key", http.MethodPost, sessionsOfShard, `{"duration":"12m"}`))
	if again := operationOf(t, ask(handler, "operator", "key", http.MethodPost, sessionsOfShard, `{"duration":"12m"}`)); again.ID != accepted.ID {
		t.Errorf("the repetition is %s, the first is %s", again.ID, accepted.ID)
	}
	var parameters adminv1.AccessSessionRequest
	if err := json.Unmarshal(accepted.Parameters, &parameters); err != nil || parameters.Mode != adminv1.AccessRead || parameters.Duration != "12m" {
		t.Errorf("the parameters are %s", accepted.Parameters)
	}
	stored := h.shardSession(t, accepted.ID)
	if stored.State != database.AccessSessionRequested || stored.Owner.ElevationID != e.ID || stored.ClusterUID != "" || stored.Mode != "read" || len(stored.SealedKeys) != 0 || stored.Intent != "" {
		t.Fatalf("the session is %+v", stored)
	}
	if list, body := read[adminv1.AccessSessionList](t, h, "/access-sessions?open=true&shard=mgmt-1"); len(list.Items) != 1 || list.Items[0].Shard != "mgmt-1" || list.Items[0].Cluster.UID != "" {
		t.Error(body)
	}
	if status, body := h.get(t, "reader", "/access-sessions?shard=mgmt-1&cluster="+uid, nil); status != http.StatusBadRequest {
		t.Errorf("%d: %s", status, body)
	}
	if h.recorded(t, func(r audit.Record) bool {
		return r.Action == adminv1.ActionShardSessionRequest && r.Outcome == audit.Accepted && r.Operation == accepted.ID && r.Level == "reader" && r.Object.Kind == adminv1.TargetShard && r.Object.ID == "mgmt-1"
	}) == 0 {
		t.Error("the audit has no record of the request")
	}
	mustAsk(t, http.StatusOK, handler, "operator", "", http.MethodDelete, "/elevations/"+e.ID, "")
	if v := h.shardSession(t, accepted.ID); v.State != database.AccessSessionEnded || v.EndedBy != "operator@example.com" {
		t.Errorf("the session is %+v", v)
	}
	ends := h.ofKind(t, adminv1.ActionElevationEnd)
	if len(ends) != 1 || ends[0].Target.Kind != adminv1.TargetShard || ends[0].Target.ID != "mgmt-1" || ends[0].Intent == "" || ends[0].Actor.ElevationID != e.ID {
		t.Errorf("the operations are %+v", ends)
	}
	if shown, body := read[adminv1.Elevation](t, h, "/elevations/"+e.ID); len(shown.Credentials) != 1 || shown.Credentials[0].Shard != "mgmt-1" ||
		shown.Credentials[0].Revocation.State != adminv1.RevocationRequested {
		t.Error(body)
	}
}

// TestSessionForManagementClusterNeedsRegion requests sessions with an elevation that is limited to a cluster, with a mode that needs another class, and with
// invalid fields.
func TestSessionForManagementClusterNeedsRegion(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", `{"class":"operate","cluster":"`+uid+`","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`), http.StatusCreated)
	if answer := ask(handler, "operator", "", http.MethodPost, sessionsOfShard, `{}`); answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "whole region") {
		t.Errorf("an elevation for a cluster: %d: %s", answer.Code, answer.Body)
	}
	h.elevated(t, handler)
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"mode":"admin"}`:    {http.StatusForbidden, "break-glass"},
		`{"mode":"write"}`:    {http.StatusBadRequest, "mode"},
		`{"duration":"1h"}`:   {http.StatusBadRequest, "duration"},
		`{"cluster":"mgmt1"}`: {http.StatusBadRequest, "cluster"},
	} {
		if answer := ask(handler, "operator", "", http.MethodPost, sessionsOfShard, body); answer.Code != want.status || !strings.Contains(answer.Body.String(), want.text) {
			t.Errorf("%s: %d: %s", body, answer.Code, answer.Body)
		}
	}
	if answer := ask(handler, "reader", "", http.MethodPost, sessionsOfShard, `{}`); answer.Code != http.StatusForbidden {
		t.Errorf("the role reader: %d: %s", answer.Code, answer.Body)
	}
}

// TestSessionForServiceCluster requests a session in a region without a service cluster, and in one that has it.
func TestSessionForServiceCluster(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	const sessions = "/service-cluster/access-sessions"
	h.config.Gateway.ServiceCluster = false
	handler := h.another(h.db)
	h.elevated(t, handler)
	if answer := ask(handler, "operator", "", http.MethodPost, sessions, `{}`); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "no service cluster") {
		t.Errorf("without a service cluster: %d: %s", answer.Code, answer.Body)
	}
	h.config.Gateway.ServiceCluster = true
	handler = h.another(h.db)
	if answer := ask(handler, "operator", "", http.MethodPost, sessions, `{"mode":"admin"}`); answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "break-glass") {
		t.Errorf("the mode admin: %d: %s", answer.Code, answer.Body)
	}
	accepted := operationOf(t, ask(handler, "operator", "", http.MethodPost, sessions, `{"duration":"12m"}`))
	if accepted.Action != adminv1.ActionServiceClusterSessionRequest || accepted.Target.Kind != adminv1.TargetServiceCluster || accepted.Target.ID != adminv1.ServiceCluster {
		t.Errorf("the operation is %+v", accepted)
	}
	list, body := read[adminv1.AccessSessionList](t, h, "/access-sessions?open=true&shard="+adminv1.ServiceCluster)
	if len(list.Items) != 1 || list.Items[0].ID != accepted.ID {
		t.Fatal(body)
	}
	mustAsk(t, http.StatusOK, handler, "operator", "", http.MethodDelete, "/elevations/"+list.Items[0].ElevationID, "")
	ends := h.ofKind(t, adminv1.ActionElevationEnd)
	if len(ends) != 1 || ends[0].Target.Kind != adminv1.TargetServiceCluster || ends[0].Target.ID != adminv1.ServiceCluster {
		t.Errorf("the operations are %+v", ends)
	}
	if ended, body := read[adminv1.AccessSession](t, h, "/access-sessions/"+accepted.ID); ended.State != adminv1.AccessSessionEnded {
		t.Error(body)
	}
}
