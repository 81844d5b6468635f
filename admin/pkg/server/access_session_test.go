package server_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const sessionsOfCluster = "/clusters/" + uid + "/access-sessions"

// session returns a stored session.
func (h *harness) session(t *testing.T, id string) *database.AccessSessionDocument {
	t.Helper()
	item := must.Get(h.db.AccessSessions().Get(t.Context(), database.AccessSessionKey(uid, id)))(t)
	return &item.Value
}

// operationOf returns the operation of an accepted request.
func operationOf(t *testing.T, answer *httptest.ResponseRecorder) adminv1.Operation {
	t.Helper()
	var accepted adminv1.Operation
	if answer.Code != http.StatusAccepted || json.Unmarshal(answer.Body.Bytes(), &accepted) != nil {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return accepted
}

// TestSessionHasKeyOnlyForGateway requests a session. Its key belongs to the request that the operation sends to Cluster Service, names
// the engineer and the level reader, and can be opened only by the gateway and only for this session.
func TestSessionHasKeyOnlyForGateway(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	e := h.elevated(t, handler)
	accepted := operationOf(t, ask(handler, "operator", "", http.MethodPost, sessionsOfCluster, `{}`))
	stored := h.session(t, accepted.ID)
	if stored.State != database.AccessSessionRequested || stored.Owner.ElevationID != e.ID || stored.Owner.ObjectID != "object-of-operator" || stored.Owner.Ticket != "INC-1" ||
		stored.Mode != "read" || len(stored.SealedKeys) != 1 || !stored.ElevationExpirationTime.Equal(*e.ExpirationTime) {
		t.Fatalf("the session is %+v", stored)
	}
	opened := must.Get(h.gateway.Open(stored.KeyPurpose(), stored.SealedKeys[0]))(t)
	block, _ := pem.Decode(opened)
	key := must.Get(x509.ParsePKCS8PrivateKey(block.Bytes))(t)
	var parameters adminv1.CredentialRequest
	must.Do(t, json.Unmarshal(accepted.Parameters, &parameters))
	asked, _ := pem.Decode([]byte(parameters.CertificateSigningRequest))
	request := must.Get(x509.ParseCertificateRequest(asked.Bytes))(t)
	if !key.(*ecdsa.PrivateKey).PublicKey.Equal(request.PublicKey) || request.Subject.CommonName != "system:sre-break-glass:object-of-operator" ||
		len(request.Subject.Organization) != 1 || request.Subject.Organization[0] != "system:cluster-readers" || parameters.Level != adminv1.LevelReader {
		t.Errorf("the request is for %v with the level %s", request.Subject, parameters.Level)
	}
	other := *stored
	other.SessionID = "another"
	if _, err := h.gateway.Open(other.KeyPurpose(), stored.SealedKeys[0]); err == nil {
		t.Error("the key was opened for another session")
	}
	for place, text := range map[string]string{"the response": string(accepted.Parameters), "the log": h.log.String()} {
		if strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s contains the private key", place)
		}
	}
	if records := h.recorded(t, func(r audit.Record) bool {
		return r.Action == adminv1.ActionAccessSessionRequest && r.Outcome == audit.Accepted && r.Operation == accepted.ID && r.Level == "reader" && r.Ticket == "INC-1" && r.Person.Elevation == e.ID
	}); records != 1 {
		t.Errorf("the audit has %d records of the request", records)
	}
}

// TestModeAdminNeedsBreakGlass requests sessions of the mode admin with elevations of another class, with one of the class break-glass that waits for
// its approval, and after that. The session and its credential have the level admin. The approver ends the elevation, and so the session.
func TestModeAdminNeedsBreakGlass(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	elevate := func(who, class string) adminv1.Elevation {
		t.Helper()
		return elevationOf(t, ask(handler, who, "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", class, 1)), http.StatusCreated)
	}
	elevate("operator", "operate")
	elevate("oncall", "operate")
	elevation := elevate("oncall", "break-glass")
	for _, who := range []string{"operator", "oncall"} {
		if answer := ask(handler, who, "", http.MethodPost, sessionsOfCluster, `{"mode":"admin"}`); answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "break-glass") {
			t.Errorf("%s without an active elevation of the class: %d: %s", who, answer.Code, answer.Body)
		}
	}
	for _, step := range []struct{ who, verb, body string }{{"approver", "approve", `{"reason":"the command is needed"}`}, {"oncall", "activate", ""}} {
		mustAsk(t, http.StatusOK, handler, step.who, "", http.MethodPost, "/elevations/"+elevation.ID+"/"+step.verb, step.body)
	}
	accepted := operationOf(t, ask(handler, "oncall", "", http.MethodPost, sessionsOfCluster, `{"mode":"admin"}`))
	var parameters adminv1.CredentialRequest
	must.Do(t, json.Unmarshal(accepted.Parameters, &parameters))
	block, _ := pem.Decode([]byte(parameters.CertificateSigningRequest))
	request := must.Get(x509.ParseCertificateRequest(block.Bytes))(t)
	if parameters.Level != adminv1.LevelAdmin || len(request.Subject.Organization) != 1 || request.Subject.Organization[0] != "system:masters" || request.Subject.CommonName != "system:sre-break-glass:object-of-oncall" {
		t.Errorf("the request is for %v with the level %s", request.Subject, parameters.Level)
	}
	if v := h.session(t, accepted.ID); v.Mode != "admin" || v.Owner.ElevationID != elevation.ID || v.Owner.Role != "break-glass" {
		t.Errorf("the session is %+v", v)
	}
	if records := h.recorded(t, func(r audit.Record) bool {
		return r.Action == adminv1.ActionAccessSessionRequest && r.Outcome == audit.Accepted && r.Level == "admin" && r.Person.Elevation == elevation.ID
	}); records != 1 {
		t.Errorf("the audit has %d records of the request", records)
	}
	mustAsk(t, http.StatusOK, handler, "approver", "", http.MethodDelete, "/elevations/"+elevation.ID, "")
	if v := h.session(t, accepted.ID); v.State != database.AccessSessionEnded || v.EndTime == nil || len(v.SealedKeys) > 0 || v.EndedBy != "approver@example.com" {
		t.Errorf("after the end of the elevation the session is %+v", v)
	}
}

// TestSessionEndsOnlyForOwnerOrBreakGlass ends sessions as other engineers.
func TestSessionEndsOnlyForOwnerOrBreakGlass(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	mustAsk(t, http.StatusCreated, handler, "oncall", "", http.MethodPost, "/elevations", `{"class":"operate","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`)
	path := "/access-sessions/" + operationOf(t, ask(handler, "oncall", "", http.MethodPost, sessionsOfCluster, `{}`)).ID
	for who, want := range map[string]int{"reader": http.StatusForbidden, "operator": http.StatusForbidden} {
		if answer := ask(handler, who, "", http.MethodDelete, path, ""); answer.Code != want {
			t.Errorf("%s: %d: %s", who, answer.Code, answer.Body)
		}
	}
	if answer := ask(handler, "approver", "", http.MethodDelete, path, ""); answer.Code != http.StatusOK {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// TestRepeatedRequestHasOneSession repeats a request with its idempotency key after the operation was stored, and after it was not.
func TestRepeatedRequestHasOneSession(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	h.elevated(t, handler)
	first := operationOf(t, ask(handler, "operator", "key", http.MethodPost, sessionsOfCluster, `{}`))
	if again := operationOf(t, ask(handler, "operator", "key", http.MethodPost, sessionsOfCluster, `{}`)); again.ID != first.ID || len(h.session(t, first.ID).SealedKeys) != 1 {
		t.Errorf("the repetition is %s, the first is %s", again.ID, first.ID)
	}
	// Admin ended between the session and the operation.
	item := must.Get(h.db.AdminOperations().Get(t.Context(), database.AdminOperationKey(first.ID)))(t)
	batch := h.db.NewBatch(database.AdminPartition)
	database.Remove(batch, item)
	must.Do(t, batch.Commit(t.Context()))
	if again := operationOf(t, ask(handler, "operator", "key", http.MethodPost, sessionsOfCluster, `{}`)); again.ID != first.ID || len(h.session(t, first.ID).SealedKeys) != 2 {
		t.Errorf("the session has %d keys", len(h.session(t, first.ID).SealedKeys))
	}
}

// TestSessionsAreBounded requests sessions until one engineer has the maximum for a cluster.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	h.elevated(t, handler)
	for i := range 11 {
		want := http.StatusAccepted
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if answer := ask(handler, "operator", "", http.MethodPost, sessionsOfCluster, `{}`); answer.Code != want {
			t.Errorf("session %d: %d: %s", i, answer.Code, answer.Body)
		}
	}
	if list, body := read[adminv1.AccessSessionList](t, h, "/access-sessions?open=true&cluster="+uid); len(list.Items) != 10 {
		t.Error(body)
	}
}

// TestRegionWithoutGatewayRefusesSessions requests a session in a region without a gateway.
func TestRegionWithoutGatewayRefusesSessions(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.config.Gateway = nil
	handler := h.another(h.db)
	h.elevated(t, handler)
	answer := ask(handler, "operator", "", http.MethodPost, sessionsOfCluster, `{}`)
	if answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "no session gateway") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// TestSessionEndsWithTime reads sessions after their request, certificate or elevation has expired, before anything has ended them.
func TestSessionEndsWithTime(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	now := time.Now().UTC()
	past, future := now.Add(-time.Second), now.Add(time.Hour)
	for id, v := range map[string]database.AccessSessionDocument{
		"request":     {State: database.AccessSessionRequested, RequestExpirationTime: past, ElevationExpirationTime: future},
		"certificate": {State: database.AccessSessionReady, RequestExpirationTime: past, ExpirationTime: &past, ElevationExpirationTime: future},
		"elevation":   {State: database.AccessSessionReady, RequestExpirationTime: past, ExpirationTime: &future, ElevationExpirationTime: past},
		"ready":       {State: database.AccessSessionReady, RequestExpirationTime: past, ExpirationTime: &future, ElevationExpirationTime: future},
	} {
		v.SessionID, v.ClusterUID = id, uid
		key := database.AccessSessionKey(uid, id)
		batch := h.db.NewBatch(key.SubscriptionID)
		database.Create(batch, h.db.AccessSessions(), key, v)
		must.Do(t, batch.Commit(t.Context()))
		want := adminv1.AccessSessionEnded
		if id == "ready" {
			want = adminv1.AccessSessionReady
		}
		if shown, body := read[adminv1.AccessSession](t, h, "/access-sessions/"+id); shown.State != want {
			t.Errorf("%s: %s", id, body)
		}
	}
	if _, err := h.db.AccessSessions().Get(t.Context(), database.AccessSessionKey("another", "ready")); err == nil {
		t.Error(errors.New("a session was found in the partition of another cluster"))
	}
}
