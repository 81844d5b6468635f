package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestCertificateEndsBeforeElevation requests certificates in elevations that end soon. Without a duration, the certificate lasts as
// long as possible.
func TestCertificateEndsBeforeElevation(t *testing.T) {
	t.Parallel()
	for elevation, tc := range map[string]struct {
		body     string
		status   int
		duration time.Duration
	}{
		"1h":  {`{"certificateSigningRequest":"csr"}`, http.StatusAccepted, 15 * time.Minute},
		"13m": {`{"certificateSigningRequest":"csr"}`, http.StatusAccepted, 0},
		"10m": {`{"certificateSigningRequest":"csr"}`, http.StatusBadRequest, 0},
		"14m": {`{"certificateSigningRequest":"csr","duration":"14m"}`, http.StatusBadRequest, 0},
		"2h":  {`{"certificateSigningRequest":"csr","duration":"16m"}`, http.StatusBadRequest, 0},
	} {
		h := newPopulated(t)
		server := h.another(h.db)
		mustAsk(t, http.StatusCreated, server, "operator", "", http.MethodPost, "/elevations", `{"class":"operate","reason":"the levels are tested","ticket":"INC-1","duration":"`+elevation+`"}`)
		answer := ask(server, "operator", "", http.MethodPost, "/clusters/"+uid+"/credentials", tc.body)
		if answer.Code != tc.status {
			t.Errorf("%s in an elevation of %s: got %d, want %d: %s", tc.body, elevation, answer.Code, tc.status, answer.Body)
			continue
		}
		if tc.status == http.StatusBadRequest {
			if !strings.Contains(answer.Body.String(), `"target":"duration"`) {
				t.Errorf("the error does not name the field: %s", answer.Body)
			}
			continue
		}
		var accepted adminv1.Operation
		var parameters adminv1.CredentialRequest
		must.Do(t, errors.Join(json.Unmarshal(answer.Body.Bytes(), &accepted), json.Unmarshal(accepted.Parameters, &parameters)))
		d, err := time.ParseDuration(parameters.Duration)
		if err != nil || tc.duration != 0 && d != tc.duration || d > 15*time.Minute || d < 10*time.Minute {
			t.Errorf("in an elevation of %s the certificate lasts %s: %v", elevation, parameters.Duration, err)
		}
	}
}

// TestLevelNeedsItsRole requests credentials of each level with each role. A refusal names the role and is audited with the level.
func TestLevelNeedsItsRole(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	server := h.another(h.db)
	elevate := func(engineer string, class adminv1.AccessClass) {
		t.Helper()
		mustAsk(t, http.StatusCreated, server, engineer, "", http.MethodPost, "/elevations", `{"class":"`+string(class)+`","cluster":"`+uid+`","reason":"the levels are tested","ticket":"INC-1","duration":"1h"}`)
	}
	request := func(engineer, level string, status int) string {
		t.Helper()
		answer := ask(server, engineer, "", http.MethodPost, "/clusters/"+uid+"/credentials", `{"certificateSigningRequest":"csr",`+level+`"duration":"10m"}`)
		if answer.Code != status {
			t.Errorf("%s with %s: got %d, want %d: %s", engineer, level, answer.Code, status, answer.Body)
		}
		return answer.Body.String()
	}
	elevate("operator", adminv1.Operate)
	for _, level := range []string{``, `"level":"reader",`} {
		var accepted adminv1.Operation
		if body := request("operator", level, http.StatusAccepted); json.Unmarshal([]byte(body), &accepted) != nil || !strings.Contains(string(accepted.Parameters), `"level":"reader"`) {
			t.Errorf("accepted %s", body)
		}
	}
	if body := request("operator", `"level":"admin",`, http.StatusForbidden); !strings.Contains(body, "break-glass") {
		t.Errorf("the refusal does not name the role: %s", body)
	}
	elevate("oncall", adminv1.Recover)
	request("oncall", `"level":"admin",`, http.StatusForbidden) // the role, but no elevation for the class
	elevate("oncall", adminv1.BreakGlassAccess)
	request("oncall", `"level":"admin",`, http.StatusAccepted)
	request("oncall", `"level":"reader",`, http.StatusAccepted)
	if body := request("oncall", `"level":"root",`, http.StatusBadRequest); !strings.Contains(body, `"target":"level"`) {
		t.Errorf("the error does not name the field: %s", body)
	}
	outcomes := map[string]int{}
	for _, record := range h.trail.Records(t) {
		if record.Action == adminv1.ActionCredentialRequest && record.Outcome != audit.Started {
			outcomes[record.Level+" "+record.Outcome]++
		}
	}
	if outcomes["reader accepted"] != 3 || outcomes["admin accepted"] != 1 || outcomes["admin refused"] != 2 {
		t.Errorf("the audit has %v", outcomes)
	}
}
