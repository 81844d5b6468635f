package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// TestRiskyRoleNeedsClaims requires MFA for the role break-glass. Without it, one can neither elevate to the role, nor act with an
// elevation to it that exists, and the refusals are audited. The role operator is not affected.
func TestRiskyRoleNeedsClaims(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.populate(t)
	free := h.another(h.db)
	elevate := func(server http.Handler, class adminv1.AccessClass) int {
		t.Helper()
		answer := ask(server, "oncall", "", http.MethodPost, "/elevations", `{"class":"`+string(class)+`","cluster":"`+uid+`","reason":"the claims are tested","ticket":"INC-1","duration":"1h"}`)
		if challenge := answer.Header().Get("WWW-Authenticate"); answer.Code == http.StatusUnauthorized &&
			(!strings.Contains(challenge, `error="insufficient_claims"`) || !strings.Contains(answer.Body.String(), "amr=mfa")) {
			t.Errorf("refused with %s: %s", challenge, answer.Body)
		}
		return answer.Code
	}
	h.config.Access.Conditions = map[adminv1.Role]access.Condition{adminv1.BreakGlass: {AuthenticationMethods: []string{"mfa"}}}
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
	h.config.Access.Conditions = map[adminv1.Role]access.Condition{adminv1.BreakGlass: {AuthenticationMethods: []string{"mfa"}}}
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
	refused := 0
	for _, record := range h.trail.Records(t) {
		if record.Outcome == audit.Refused && record.Person.Name == "oncall@example.com" && record.Code == "Unauthorized" {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("the audit has %d refusals, want 3: %+v", refused, h.trail.Records(t))
	}
}
