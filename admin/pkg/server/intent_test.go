package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestAcceptedOperationIsSigned checks that an accepted operation has an intent that names the engineer and authorizes exactly
// this operation until the end of the elevation, and that no response shows it.
func TestAcceptedOperationIsSigned(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	handler := h.another(h.db)
	accepted := operationOf(t, ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"2h"}`))
	item := must.Get(h.db.AdminOperations().Get(t.Context(), database.AdminOperationKey(accepted.ID)))(t)
	o := &item.Value
	asked := must.Get(h.intents.Verify(t.Context(), o.Intent))(t)
	if err := adminaction.Check(asked, o); err != nil {
		t.Error(err)
	}
	if adminaction.ActorOf(asked) != o.Actor || asked.ObjectID != "object-of-operator" || asked.Reason != "the customer asked for it" || asked.Ticket != "INC-1" ||
		strings.Join(asked.Roles, " ") != "reader operator" || asked.Elevation.Role != "operator" || asked.Elevation.ID == "" {
		t.Errorf("the intent is %+v", asked)
	}
	if left := time.Until(asked.ExpiresAt); left <= 0 || left > time.Hour {
		t.Errorf("it ends in %s, want within the hour of the elevation", left)
	}
	request, err := adminaction.RequestOf(o)
	if err != nil || !asked.AllowsCall(request.Method, request.Message) {
		t.Errorf("it does not allow the request %v: %v", request, err)
	}
	for _, path := range []string{"/operations/" + accepted.ID, "/operations", "/audit"} {
		if shown := ask(handler, "oncall", "", http.MethodGet, path, ""); shown.Code != http.StatusOK || strings.Contains(shown.Body.String(), o.Intent) {
			t.Errorf("GET %s: %d %s", path, shown.Code, shown.Body)
		}
	}
	if strings.Contains(h.log.String(), o.Intent) {
		t.Error("the log contains the intent")
	}
}

// TestIntentKeysArePublished checks that anybody can read the public keys, and nothing else.
func TestIntentKeysArePublished(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	recorder := httptest.NewRecorder()
	h.another(h.db).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, adminv1.IntentKeysPath, nil))
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	_ = json.Unmarshal([]byte(strings.ReplaceAll(recorder.Body.String(), `["verify"]`, `"verify"`)), &set)
	if recorder.Code != http.StatusOK || len(set.Keys) != 1 || set.Keys[0]["kty"] != "EC" || set.Keys[0]["kid"] == "" || set.Keys[0]["d"] != "" {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}
