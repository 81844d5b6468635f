package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestElevationTrimsReasonAndTicket checks that surrounding space is not stored and does not count towards the minimum length.
func TestElevationTrimsReasonAndTicket(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const reason, ticket = "the control plane is being looked at", "INC-42"
	space := strings.Repeat(" ", 2000)
	body := must.Get(json.Marshal(adminv1.ElevationRequest{Class: adminv1.Operate, Reason: space + reason + space, Ticket: space + ticket + "\n", Duration: "1h"}))(t)
	if elevation := elevationOf(t, ask(h.another(h.db), "operator", "", http.MethodPost, "/elevations", string(body)), http.StatusCreated); elevation.Reason != reason || elevation.Ticket != ticket {
		t.Errorf("kept %q and %q", elevation.Reason, elevation.Ticket)
	}
	if answer := ask(h.another(h.db), "operator", "", http.MethodPost, "/elevations",
		`{"class":"operate","reason":"`+space+`why`+space+`","ticket":"INC-1","duration":"1h"}`); answer.Code != http.StatusBadRequest {
		t.Errorf("spaces count as a reason: %d %s", answer.Code, answer.Body)
	}
}

// TestMethodNotAllowedListsMethods checks the header Allow, see RFC 9110, section 15.5.6.
func TestMethodNotAllowedListsMethods(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	answer := ask(h.another(h.db), "reader", "", http.MethodPost, "/shards/mgmt-1", "")
	if allow := answer.Header().Get("Allow"); answer.Code != http.StatusMethodNotAllowed || allow != "GET, PATCH, PUT, DELETE" || !strings.Contains(answer.Body.String(), allow) {
		t.Errorf("%d, Allow: %q: %s", answer.Code, allow, answer.Body)
	}
}
