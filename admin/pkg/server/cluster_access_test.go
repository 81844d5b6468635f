package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// accesses returns the accesses to the cluster, and the body of the last page.
func (h *harness) accesses(t *testing.T, handler http.Handler, query string) (all []adminv1.Access, body string) {
	t.Helper()
	for path := "/clusters/" + uid + "/accesses" + query; path != ""; {
		answer := ask(handler, "reader", "", http.MethodGet, path, "")
		var list adminv1.AccessList
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
		}
		all, body = append(all, list.Value...), answer.Body.String()
		_, path, _ = strings.Cut(list.NextLink, adminv1.Root)
	}
	return all, body
}

// TestAccessHasAllFacts reads the accesses to a cluster: one that another engineer approved, with a session and requests to the API server, and one for
// the region that was used for an action. Elevations that were not used for the cluster are no access.
func TestAccessHasAllFacts(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	first := h.elevated(t, handler) // for the region
	mustAsk(t, http.StatusAccepted, handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"1h"}`)
	unused := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "break-glass", "operate", 1)), http.StatusCreated)
	asked := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+asked.ID+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations/"+asked.ID+"/activate", ""), http.StatusOK)
	elevationOf(t, ask(handler, "oncall", "", http.MethodDelete, "/elevations/"+unused.ID, ""), http.StatusOK)
	session := operationOf(t, ask(handler, "oncall", "", http.MethodPost, sessionsOfCluster, `{}`))
	record := func(action, kind, id, outcome string, count int) {
		t.Helper()
		must.Do(t, h.trail.Append(t.Context(), audit.Record{Person: audit.Person{Name: "oncall@example.com", ObjectID: "object-of-oncall", Elevation: asked.ID}, Action: action,
			Object: audit.Object{Kind: kind, ID: id, Cluster: uid}, Level: "admin", Outcome: outcome, Count: count}))
	}
	record("credentials.issued", "credential", "c", audit.Succeeded, 0)
	record("kubernetes.list", "pods", "/api/v1/pods", audit.Succeeded, 0)
	record("kubernetes.list", "pods", "/api/v1/pods", audit.Failed, 0)
	record("kubernetes.get", "secrets", "/api/v1/secrets", audit.Refused, 3)
	record("credentials.revoked", "credential", "c", audit.Succeeded, 0)
	ended := elevationOf(t, ask(handler, "oncall", "", http.MethodDelete, "/elevations/"+asked.ID, ""), http.StatusOK)
	h.trail.Stop() // the sink has all records now

	got, _ := h.accesses(t, handler, "")
	if len(got) != 2 || got[0].Name != asked.ID || got[1].Name != first.ID {
		t.Fatalf("the accesses are %+v", got)
	}
	second := got[0]
	p := second.Properties
	if second.ID != resourceID+"/accessRecords/"+asked.ID || second.Type != "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/accessRecords" || second.SystemData.CreatedBy != p.Engineer.Alias {
		t.Errorf("%+v", second)
	}
	if p.Engineer.Name != "oncall@example.com" || p.Engineer.Organization != "tenant" || p.Class != adminv1.BreakGlassAccess || p.Role != adminv1.BreakGlass || p.Scope != database.TargetRegion ||
		p.State != adminv1.ElevationEnded || p.Reason != "the customer asked for it" || p.Ticket != "INC-1" || !p.EndTime.Equal(*ended.EndTime) || p.Approval == nil ||
		p.Approval.Approver.Name != "approver@example.com" || p.Approval.Reason != "agreed in the call" || p.ActivityIncomplete != "" {
		t.Errorf("%+v", p)
	}
	if len(p.Uses) != 2 || p.Uses[0].ID != session.ID || p.Uses[0].Kind != adminv1.AccessUseSession || p.Uses[0].Level != adminv1.LevelReader || p.Uses[0].EndTime == nil ||
		p.Uses[1].ID != "c" || p.Uses[1].Kind != adminv1.AccessUseCredential || p.Uses[1].StartTime == nil || p.Uses[1].EndTime == nil || p.Uses[1].EndTime.Before(*p.Uses[1].StartTime) {
		t.Errorf("the uses are %+v", p.Uses)
	}
	want := []adminv1.AccessActivity{{Verb: adminv1.ActionAccessSessionRequest, Resource: "cluster", Count: 1},
		{Verb: "get", Resource: "secrets", Count: 3, Refused: 3}, {Verb: "list", Resource: "pods", Count: 2, Failed: 1}}
	if diff := cmp.Diff(want, p.Activity); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]adminv1.AccessActivity{{Verb: adminv1.ActionClusterPause, Resource: "cluster", Count: 1}}, got[1].Properties.Activity); diff != "" {
		t.Error(diff)
	}

	// Customers see aliases, which are the same on all pages.
	var forCustomer []adminv1.Access
	for _, query := range []string{"?format=arm", "?format=arm&pageSize=1"} {
		var body string
		forCustomer, body = h.accesses(t, handler, query)
		content := must.Get(json.Marshal(forCustomer))(t)
		if strings.Contains(string(content)+body, "@example.com") || strings.Contains(string(content), "object-of") {
			t.Errorf("customers see who it was: %s", content)
		}
		if len(forCustomer) != 2 || forCustomer[0].Properties.Engineer.Alias != p.Engineer.Alias || forCustomer[0].Properties.Approval.Approver.Alias == p.Engineer.Alias || !strings.HasPrefix(p.Engineer.Alias, "engineer-") {
			t.Errorf("%s: %s", query, content)
		}
	}

	// A document that admin did not write is no access.
	item := h.stored(t, first.ID)
	item.Value.Actor.Name = "forged@example.com"
	replace(t, h, item)
	if got, _ := h.accesses(t, handler, ""); len(got) != 1 || got[0].Name != asked.ID {
		t.Errorf("a forged elevation is an access: %+v", got)
	}
}
