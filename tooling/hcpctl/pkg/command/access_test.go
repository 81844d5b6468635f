package command

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// TestAccessOfTwoEngineers checks the requests of each command of `hcpctl access`, and what the commands print.
func TestAccessOfTwoEngineers(t *testing.T) {
	a := newSREs(t)
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	waiting := adminv1.Elevation{ID: "e", State: adminv1.ElevationRequested, Name: "oncall", Class: adminv1.BreakGlassAccess, RequestTime: now, RequestExpirationTime: now, Duration: "1h0m0s", Reason: "etcd has no leader"}
	approved := waiting
	approved.State, approved.Decision = adminv1.ElevationApproved, &adminv1.ElevationDecision{Approved: true, Name: "approver", Reason: "agreed in the call", Time: now}
	denied := waiting
	denied.State, denied.Decision = adminv1.ElevationDenied, &adminv1.ElevationDecision{Name: "approver", Reason: "the incident is closed", Time: now}
	emergency := waiting
	emergency.State, emergency.Emergency = adminv1.ElevationEnded, true
	revocation := func(state adminv1.RevocationState, message string) adminv1.Elevation {
		e := waiting
		e.State, e.EndTime = adminv1.ElevationEnded, &now
		e.Credentials = []adminv1.ElevationCredentials{{Cluster: adminv1.ElevationCluster{UID: "cluster-1"}, Revocation: &adminv1.ElevationRevocation{OperationID: "o", State: state, Message: message, AcceptedUntil: now}}}
		return e
	}
	requested := revocation(adminv1.RevocationRequested, "")
	sessions := revocation(adminv1.RevocationRevoked, "")
	sessions.Credentials[0].Cluster, sessions.Credentials[0].Shard = adminv1.ElevationCluster{}, "mgmt-1"
	serviceSessions := revocation(adminv1.RevocationRevoked, "")
	serviceSessions.Credentials[0].Cluster, serviceSessions.Credentials[0].Shard = adminv1.ElevationCluster{}, adminv1.ServiceCluster
	const request, post = "POST /elevations break-glass: etcd has no leader (INC-1)", "POST /elevations/e/"
	because := []string{"--reason", "etcd has no leader", "--ticket", "INC-1"}
	for name, tc := range map[string]struct {
		reason string
		// created and shown are admin's responses to the request and to the wait.
		created, shown adminv1.Elevation
		args           []string
		want           []string
		says, fails    string
	}{
		"request":      {"it waits", waiting, waiting, append([]string{"access", "request", "--class", "break-glass"}, because...), []string{request}, "is Requested", ""},
		"request wait": {"it is activated", waiting, approved, append([]string{"access", "request", "--wait", "--class", "break-glass"}, because...), []string{request, post + "activate"}, "elevated to break-glass on the region", ""},
		"denied":       {"the reason is shown", waiting, denied, append([]string{"access", "request", "--wait", "--class", "break-glass"}, because...), []string{request}, "", "approver denied the request e: the incident is closed"},
		"one command":  {"a command waits as well", waiting, approved, append([]string{"orphan", "delete", "b"}, because...), []string{strings.Replace(request, "break-glass", "recover", 1), post + "activate", "DELETE /orphans/b", "DELETE /elevations/e"}, "", ""},
		"one command denied": {"nothing is done, and nothing stays open", waiting, denied, append([]string{"orphan", "delete", "b"}, because...),
			[]string{strings.Replace(request, "break-glass", "recover", 1), "DELETE /elevations/e"}, "", "denied"},
		"emergency alone": {"it needs a reason", waiting, denied, []string{"orphan", "delete", "b", "--emergency"}, nil, "", "--emergency requires --reason"},
		"approve":         {"", waiting, waiting, []string{"access", "approve", "e", "--reason", "agreed in the call"}, []string{post + `approve {"reason":"agreed in the call"}`}, "", ""},
		"deny":            {"", waiting, waiting, []string{"access", "deny", "e", "--reason", "it is closed"}, []string{post + `deny {"reason":"it is closed"}`}, "", ""},
		"activate":        {"", waiting, waiting, []string{"access", "activate", "e"}, []string{post + "activate"}, "", ""},
		"end":             {"", waiting, waiting, []string{"access", "end", "e"}, []string{"DELETE /elevations/e"}, "", ""},
		"end with credentials": {"it waits until they are revoked", requested, revocation(adminv1.RevocationRevoked, ""), []string{"access", "end", "e"}, []string{"DELETE /elevations/e"},
			"cluster cluster-1 accepts no certificate of the elevation", ""},
		"end with sessions": {"their management cluster is named", requested, sessions, []string{"access", "end", "e"}, []string{"DELETE /elevations/e"},
			"the sessions of the elevation for management cluster mgmt-1 have ended", ""},
		"end with a session for the service cluster": {"the service cluster is named", requested, serviceSessions, []string{"access", "end", "e"}, []string{"DELETE /elevations/e"},
			"the sessions of the elevation for the service cluster have ended", ""},
		"end that fails":   {"the cause is shown", requested, revocation(adminv1.RevocationFailed, "The control plane refuses it."), []string{"access", "end", "e"}, []string{"DELETE /elevations/e"}, "", "The control plane refuses it."},
		"end without wait": {"the revocation continues", requested, requested, []string{"access", "end", "e", "--no-wait"}, []string{"DELETE /elevations/e"}, "", ""},
		"show revocation": {"it states what the revocation waits for", waiting, revocation(adminv1.RevocationRevoking, "Waiting for the agent."), []string{"access", "show", "e"}, nil,
			"Revoking: Waiting for the agent. The API server may accept them until", ""},
		"review":         {"", waiting, waiting, []string{"access", "review", "e", "--unjustified", "--comment", "it could wait"}, []string{post + `review {"justified":false,"comment":"it could wait"}`}, "", ""},
		"show":           {"the decision is shown", waiting, approved, []string{"access", "show", "e"}, nil, "agreed in the call", ""},
		"show emergency": {"the missing review is shown", waiting, emergency, []string{"access", "show", "e"}, nil, "nobody yet", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a.asked, a.elevation = nil, tc.created
			a.shown = map[string]any{"/elevations/e?while=Requested": tc.shown, "/elevations/e": tc.shown}
			out, err := a.hcpctl(t, tc.args...)
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s: %v, want it to say %q", tc.reason, err, tc.fails)
			}
			if !strings.Contains(out, tc.says) {
				t.Errorf("%s: it prints %q, want %q", tc.reason, out, tc.says)
			}
			if !slices.Equal(a.asked, tc.want) {
				t.Errorf("%s: admin was asked %q, want %q", tc.reason, a.asked, tc.want)
			}
		})
	}
}

// TestListShowsWorstRevocation checks that the list shows the state that needs the most attention.
func TestListShowsWorstRevocation(t *testing.T) {
	for want, states := range map[adminv1.RevocationState][]adminv1.RevocationState{
		"":                        nil,
		adminv1.RevocationRevoked: {adminv1.RevocationExpired, adminv1.RevocationRevoked},
		adminv1.RevocationUnknown: {adminv1.RevocationRevoking, adminv1.RevocationUnknown, adminv1.RevocationRequested},
		adminv1.RevocationFailed:  {adminv1.RevocationFailed, adminv1.RevocationUnknown, adminv1.RevocationRevoked},
	} {
		e := &adminv1.Elevation{Credentials: []adminv1.ElevationCredentials{{}}}
		for _, state := range states {
			e.Credentials = append(e.Credentials, adminv1.ElevationCredentials{Revocation: &adminv1.ElevationRevocation{State: state}})
		}
		if got := revocationOf(e); got != string(want) {
			t.Errorf("%v: the list shows %q, want %q", states, got, want)
		}
	}
}

// TestAccessListSelects checks the queries of `hcpctl access list`.
func TestAccessListSelects(t *testing.T) {
	a := newSREs(t)
	for line, query := range map[string]string{
		"access list":                   "open=true&pageSize=100",
		"access list --all":             "pageSize=100",
		"access list --unreviewed":      "pageSize=100&unreviewed=true",
		"access list --state Requested": "pageSize=100&state=Requested",
	} {
		a.shown = map[string]any{"/elevations?" + query: adminv1.ElevationList{Items: []adminv1.Elevation{{ID: "the one", State: adminv1.ElevationRequested}}}}
		if out, err := a.hcpctl(t, strings.Fields(line)...); err != nil || !strings.Contains(out, "the one") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}
