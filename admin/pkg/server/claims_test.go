package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRiskyRoleNeedsClaims requires MFA for the role break-glass. Without it, one can neither elevate to the role, nor act with an
// elevation to it that exists, and the refusals are audited. The role operator is not affected.
func TestRiskyRoleNeedsClaims(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	free := h.another(h.db)
	elevate := func(server http.Handler, class adminv1.AccessClass) int {
		t.Helper()
		answer := ask(server, "oncall", "", http.MethodPost, "/elevations", `{"class":"`+string(class)+`","cluster":"`+uid+`","reason":"the claims are tested","ticket":"INC-1","duration":"1h"}`)
		if answer.Code == http.StatusUnauthorized && !lacksClaims(answer) {
			t.Errorf("refused with %v: %s", answer.Header(), answer.Body)
		}
		return answer.Code
	}
	h.config.Access.Conditions = map[adminv1.Role]access.Condition{adminv1.BreakGlass: mfa}
	if code := elevate(free, adminv1.BreakGlassAccess); code != http.StatusUnauthorized {
		t.Errorf("an elevation to break-glass without MFA: %d", code)
	}
	if code := elevate(free, adminv1.Operate); code != http.StatusCreated {
		t.Errorf("an elevation to operator: %d", code)
	}
	h.config.Access.Conditions = nil
	if code := elevate(free, adminv1.BreakGlassAccess); code != http.StatusCreated {
		t.Fatalf("an elevation to break-glass without conditions: %d", code)
	}
	h.config.Access.Conditions = map[adminv1.Role]access.Condition{adminv1.BreakGlass: mfa}
	for request, want := range map[[2]string]int{
		{"/clusters/" + uid + "/credentials", `{"level":"admin","certificateSigningRequest":"csr"}`}:  http.StatusUnauthorized,
		{"/clusters/" + uid + "/force", `{"step":"azure/operator-roles"}`}:                            http.StatusUnauthorized,
		{"/clusters/" + uid + "/credentials", `{"level":"reader","certificateSigningRequest":"csr"}`}: http.StatusAccepted,
		{"/clusters/" + uid + "/retry", ``}:                                                           http.StatusAccepted,
	} {
		if answer := ask(free, "oncall", "", http.MethodPost, request[0], request[1]); answer.Code != want {
			t.Errorf("%s %s: got %d, want %d: %s", request[0], request[1], answer.Code, want, answer.Body)
		}
	}
	if refused := h.recorded(t, func(r audit.Record) bool {
		return r.Outcome == audit.Refused && r.Person.Name == "oncall@example.com" && r.Code == "Unauthorized"
	}); refused != 3 {
		t.Errorf("the audit has %d refusals, want 3: %+v", refused, h.trail.Records(t))
	}
}

// mfa is a condition of a role.
var mfa = access.Condition{AuthenticationMethods: []string{"mfa"}}

// lacksClaims reports whether a response asks the client for a token with the claim of the condition mfa.
func lacksClaims(answer *httptest.ResponseRecorder) bool {
	return answer.Code == http.StatusUnauthorized && strings.Contains(answer.Header().Get("WWW-Authenticate"), `error="insufficient_claims"`) && strings.Contains(answer.Body.String(), "amr=mfa")
}

// TestEveryRouteChecksClaims requires a claim for each role in turn. Every route of the role refuses a token without it, and only
// such a token, unless the route table gives the reason why it does not.
func TestEveryRouteChecksClaims(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	checked, excepted := 0, 0
	for _, role := range []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass} {
		h.config.Access = &access.Config{Groups: h.config.Access.Groups, Conditions: map[adminv1.Role]access.Condition{role: mfa}}
		handler := h.another(h.db)
		for _, route := range server.Routes() {
			if route.Role != role {
				continue
			}
			path := strings.TrimPrefix(placeholder.ReplaceAllString(route.Path, "none"), adminv1.Root)
			want := route.WithoutClaims == ""
			if answer := ask(handler, "oncall", "", route.Method, path, "{}"); lacksClaims(answer) != want {
				t.Errorf("%s %s without the claims of %s: status %d, want a refusal: %t: %s", route.Method, route.Path, role, answer.Code, want, answer.Body)
			}
			if answer := ask(handler, "oncall+mfa", "", route.Method, path, "{}"); lacksClaims(answer) {
				t.Errorf("%s %s with the claims of %s is refused: %s", route.Method, route.Path, role, answer.Body)
			}
			if want {
				checked++
			} else {
				excepted++
			}
		}
	}
	if checked+excepted != len(server.Routes()) || checked < 80 || excepted != 2 {
		t.Errorf("%d routes check claims and %d do not, of %d", checked, excepted, len(server.Routes()))
	}
}

// TestFurtherRolesNeedClaims requires MFA for the role break-glass only, at routes of the role operator whose object requires
// break-glass: approval, denial, activation and review of elevations, and the end of others' elevations and sessions.
func TestFurtherRolesNeedClaims(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	free := h.another(h.db)
	request := func(engineer, fields string) string {
		t.Helper()
		return "/elevations/" + elevationOf(t, ask(free, engineer, "", http.MethodPost, "/elevations", `{"reason":"the claims are tested","ticket":"INC-1","duration":"1h",`+fields+`}`), http.StatusCreated).ID
	}
	region, denied := request("oncall", `"class":"break-glass"`), request("oncall", `"class":"break-glass"`)
	emergency, active := request("oncall", `"class":"break-glass","emergency":true`), request("operator", `"class":"operate","cluster":"`+uid+`"`)
	mustAsk(t, http.StatusOK, free, "oncall", "", http.MethodDelete, emergency, "")
	for _, id := range []string{"own", "other"} {
		v := database.AccessSessionDocument{SessionID: id, ClusterUID: uid, State: database.AccessSessionRequested}
		if v.Owner.ObjectID, v.Owner.TenantID = "object-of-operator", "tenant"; id == "own" {
			v.Owner.ObjectID = "object-of-approver"
		}
		key := database.AccessSessionKey(uid, id)
		batch := h.db.NewBatch(key.SubscriptionID)
		database.Create(batch, h.db.AccessSessions(), key, v)
		must.Do(t, batch.Commit(t.Context()))
	}
	h.config.Access = &access.Config{Groups: h.config.Access.Groups, Conditions: map[adminv1.Role]access.Condition{adminv1.BreakGlass: mfa}}
	handler := h.another(h.db)
	for _, step := range []struct{ engineer, method, path, body string }{
		{"approver", http.MethodPost, region + "/approve", `{"reason":"the claims are tested"}`},
		{"approver", http.MethodPost, denied + "/deny", `{"reason":"the claims are tested"}`},
		{"oncall", http.MethodPost, region + "/activate", ``},
		{"approver", http.MethodPost, emergency + "/review", `{"justified":true,"comment":"the claims are tested"}`},
		{"approver", http.MethodDelete, active, ``},
		{"approver", http.MethodDelete, "/access-sessions/other", ``},
	} {
		if answer := ask(handler, step.engineer, "", step.method, step.path, step.body); !lacksClaims(answer) {
			t.Errorf("%s %s without the claims: %d %s", step.method, step.path, answer.Code, answer.Body)
		}
		if answer := ask(handler, step.engineer+"+mfa", "", step.method, step.path, step.body); answer.Code != http.StatusOK {
			t.Errorf("%s %s with the claims: %d %s", step.method, step.path, answer.Code, answer.Body)
		}
	}
	// Engineers end their own access without the claims.
	for engineer, path := range map[string]string{"oncall": region, "approver": "/access-sessions/own"} {
		if answer := ask(handler, engineer, "", http.MethodDelete, path, ""); answer.Code != http.StatusOK {
			t.Errorf("%s ends %s: %d %s", engineer, path, answer.Code, answer.Body)
		}
	}
}
