package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// breakGlass is a request that another engineer must approve.
const breakGlass = `{"class":"break-glass","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`

// elevationOf decodes a response that must have a status.
func elevationOf(t *testing.T, answer *httptest.ResponseRecorder, status int) adminv1.Elevation {
	t.Helper()
	var e adminv1.Elevation
	if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil || answer.Code != status {
		t.Fatalf("%d, want %d: %s", answer.Code, status, answer.Body)
	}
	return e
}

// TestConcurrentApprovalsHaveOneEffect lets ten engineers approve a request at the same time. One of them decides.
func TestConcurrentApprovalsHaveOneEffect(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	groups := []string{"group-of-oncall"}
	for i := range 10 {
		groups = append(groups, fmt.Sprintf("group-of-approver-%d", i))
	}
	h.config.Access = &access.Config{Groups: map[adminv1.Role][]string{adminv1.BreakGlass: groups}}
	handler := h.another(h.db)
	id := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated).ID
	answers := make([]*httptest.ResponseRecorder, 10)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = ask(handler, fmt.Sprintf("approver-%d", i), "", http.MethodPost, "/elevations/"+id+"/approve", `{"reason":"agreed in the call"}`)
		})
	}
	wg.Wait()
	decided := elevationOf(t, ask(handler, "oncall", "", http.MethodGet, "/elevations/"+id, ""), http.StatusOK)
	for i, answer := range answers {
		want := http.StatusConflict
		if decided.Decision != nil && decided.Decision.Name == fmt.Sprintf("approver-%d@example.com", i) {
			want = http.StatusOK
		}
		if answer.Code != want {
			t.Errorf("approver %d: %d, want %d: %s", i, answer.Code, want, answer.Body)
		}
	}
	records := slices.DeleteFunc(h.trail.Records(t), func(r audit.Record) bool { return r.Action != "elevations.approve" || r.Outcome != audit.Accepted })
	if decided.State != adminv1.ElevationApproved || len(records) != 1 || records[0].Person.Name != decided.Decision.Name {
		t.Errorf("the request is %+v, with the records %+v", decided, records)
	}
}

// TestElevationOfClusterCoversNoOther checks that an elevation for one cluster permits actions on it only.
func TestElevationOfClusterCoversNoOther(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	body := `{"class":"operate","cluster":"` + uid + `","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`
	e := elevationOf(t, ask(handler, "operator", "", http.MethodPost, "/elevations", body), http.StatusCreated)
	if e.Cluster == nil || e.Cluster.UID != uid || e.State != adminv1.ElevationActive {
		t.Fatalf("the elevation is %+v", e)
	}
	for _, tc := range []struct {
		reason, method, path, body string
		want                       int
	}{
		{"on the cluster", http.MethodPost, "/clusters/" + uid + "/pause", `{"duration":"2h"}`, http.StatusAccepted},
		{"on the cluster by another identifier", http.MethodPost, "/clusters/" + clusterID + "/resume", "", http.StatusAccepted},
		{"on no cluster", http.MethodPost, "/clusters/unknown/resume", "", http.StatusNotFound},
		{"on the region", http.MethodPost, "/drift/reconcile", "", http.StatusForbidden},
		{"on a shard", http.MethodPost, "/shards/mgmt-1/drain", "", http.StatusForbidden},
	} {
		if answer := ask(handler, "operator", "", tc.method, tc.path, tc.body); answer.Code != tc.want {
			t.Errorf("%s: %d, want %d: %s", tc.reason, answer.Code, tc.want, answer.Body)
		}
	}
	// The same elevation for another cluster.
	item := must.Get(h.db.Elevations().Get(t.Context(), database.ElevationKey(e.ID)))(t)
	item.Value.Target.ClusterUID = "another"
	must.Do(t, h.config.Seals.Seal(&item.Value))
	replace(t, h, item)
	if answer := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"2h"}`); answer.Code != http.StatusForbidden {
		t.Errorf("another cluster's elevation: %d %s", answer.Code, answer.Body)
	}
}

// TestEmergencyIsMarkedAndCounted checks that an emergency waives the approval and is marked in the audit records of the elevation and
// of the actions under it, and that it is counted until a second person has reviewed it, also by a replica that starts later.
func TestEmergencyIsMarkedAndCounted(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	unreviewed := func(metrics *prometheus.Registry, want float64) {
		t.Helper()
		eventually.Soon(t, "the metric counts the emergencies", func() error {
			if got := valueOf(t, metrics, "admin_emergency_elevations_unreviewed", ""); got != want {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		})
	}
	e := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", strings.Replace(breakGlass, "{", `{"emergency":true,`, 1)), http.StatusCreated)
	if e.State != adminv1.ElevationActive || !e.Emergency {
		t.Fatalf("the elevation is %+v", e)
	}
	unreviewed(h.metrics, 1)
	mustAsk(t, http.StatusAccepted, handler, "oncall", "", http.MethodPost, "/clusters/"+uid+"/resume", "")
	for _, action := range []string{"elevations.create", adminv1.ActionClusterResume} {
		if !slices.ContainsFunc(h.trail.Records(t), func(r audit.Record) bool {
			return r.Action == action && r.Outcome == audit.Accepted && r.Emergency && r.Ticket == "INC-1"
		}) {
			t.Errorf("the audit has no record of %s that is marked", action)
		}
	}
	metrics, end := h.watch()
	unreviewed(metrics, 1)
	end()
	elevationOf(t, ask(handler, "oncall", "", http.MethodDelete, "/elevations/"+e.ID, ""), http.StatusOK)
	elevationOf(t, ask(handler, "approver", "", http.MethodPost, "/elevations/"+e.ID+"/review", `{"justified":true,"comment":"nobody was awake"}`), http.StatusOK)
	unreviewed(h.metrics, 0)
}

// TestWaitEndsWithDecision checks that a request that waits for a decision is answered when another replica stores it.
func TestWaitEndsWithDecision(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler := h.another(h.db)
	id := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated).ID
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		answered <- ask(handler, "oncall", "", http.MethodGet, "/elevations/"+id+"?while=Requested", "")
	}()
	elevationOf(t, ask(h.another(h.db), "approver", "", http.MethodPost, "/elevations/"+id+"/approve", `{"reason":"agreed in the call"}`), http.StatusOK)
	if e := elevationOf(t, <-answered, http.StatusOK); e.State != adminv1.ElevationApproved {
		t.Errorf("the request is %s", e.State)
	}
}

// TestWaitEndsWithProcess checks that waiting requests do not hold up the end of the process.
func TestWaitEndsWithProcess(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler := h.another(h.db)
	id := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated).ID
	h.config.Elevations.Release()
	if e := elevationOf(t, ask(handler, "oncall", "", http.MethodGet, "/elevations/"+id+"?while=Requested", ""), http.StatusOK); e.State != adminv1.ElevationRequested {
		t.Errorf("the request is %s", e.State)
	}
}

// TestSweepElevations kills admin before and after each of its writes while an engineer requests an elevation, another approves it,
// and the first activates, uses and ends it. Each repeats a request without a response. There must be one elevation with one decision.
func TestSweepElevations(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		h := newPopulated(t)
		admin := h.startCrashing(t, d)
		id := ""
		for _, request := range []struct {
			engineer, key, method, path, body string
			want                              int
		}{
			{"oncall", "one", http.MethodPost, "/elevations", breakGlass, http.StatusCreated},
			{"approver", "", http.MethodPost, "/elevations/{id}/approve", `{"reason":"agreed in the call"}`, http.StatusOK},
			{"oncall", "", http.MethodPost, "/elevations/{id}/activate", "", http.StatusOK},
			{"oncall", "two", http.MethodPost, "/clusters/" + uid + "/resume", "", http.StatusAccepted},
			{"oncall", "", http.MethodDelete, "/elevations/{id}", "", http.StatusOK},
		} {
			answer, _ := admin.Send(func() *http.Request {
				return requestOf(request.engineer, request.key, request.method, strings.ReplaceAll(request.path, "{id}", id), request.body)
			})
			if answer.Code != request.want {
				t.Fatalf("%s: %d %s", request.path, answer.Code, answer.Body)
			}
			if id == "" {
				id = elevationOf(t, answer, request.want).ID
			}
		}
		records, _, err := h.db.AdminRecords(context.WithoutCancel(t.Context()), database.AdminFilter{Kinds: []database.Kind{database.ElevationKind}}, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		var elevations []string
		for _, r := range records {
			e := r.Elevation.Value
			elevations = append(elevations, fmt.Sprint(e.State, " approved by ", e.Decision.Name, ", active: ", !e.StartTime.IsZero(), ", ended by ", e.EndedBy))
		}
		return append(elevations, h.began(t)...)
	})
}

// TestElevationIsRepeated checks that a request with the same key creates one elevation.
func TestElevationIsRepeated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	handler := h.another(h.db)
	first := elevationOf(t, ask(handler, "oncall", "k", http.MethodPost, "/elevations", breakGlass), http.StatusCreated)
	if again := elevationOf(t, ask(handler, "oncall", "k", http.MethodPost, "/elevations", breakGlass), http.StatusCreated); again.ID != first.ID {
		t.Errorf("the same request created %s, and then %s", first.ID, again.ID)
	}
	if other := elevationOf(t, ask(handler, "oncall", "", http.MethodPost, "/elevations", breakGlass), http.StatusCreated); other.ID == first.ID {
		t.Error("a request without a key is the same")
	}
	if answer := ask(handler, "oncall", "k", http.MethodPost, "/elevations", strings.Replace(breakGlass, "1h", "2h", 1)); answer.Code != http.StatusConflict {
		t.Errorf("another request with the key: %d %s", answer.Code, answer.Body)
	}
}
