package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// ask sends a request of an engineer to a handler, with an idempotency key unless it is empty.
func ask(handler http.Handler, engineer, key, method, path, body string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, requestOf(engineer, key, method, path, body))
	return recorder
}

// mustAsk is ask for a response whose code must be the given one.
func mustAsk(t testing.TB, code int, handler http.Handler, engineer, key, method, path, body string) {
	t.Helper()
	if answer := ask(handler, engineer, key, method, path, body); answer.Code != code {
		t.Fatalf("%s %s of %s: %d, want %d: %s", method, path, engineer, answer.Code, code, answer.Body)
	}
}

// requestOf returns a request of an engineer, with an idempotency key unless it is empty.
func requestOf(engineer, key, method, path, body string) *http.Request {
	request := httptest.NewRequestWithContext(context.Background(), method, adminv1.Root+path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+engineer)
	if key != "" {
		request.Header.Set(adminv1.IdempotencyKey, key)
	}
	return request
}

// startCrashing starts an admin that crashes at its writes to the store.
func (h *harness) startCrashing(t *testing.T, d *crashsweep.Injector) *crashsweep.Server {
	return crashsweep.StartServer(t, d, func() (http.Handler, func()) {
		options := h.cosmos
		options.Transport = d.Transport(databasetest.WriteContainer)
		db := must.Get(database.Open(t.Context(), options))(t)
		return h.another(db), db.Close
	})
}

// another returns one more admin on a store.
func (h *harness) another(db *database.DB) http.Handler {
	config := h.config
	config.Database, config.Metrics = db, prometheus.NewRegistry()
	return server.New(config)
}

// elevate elevates the engineer operator.
func (h *harness) elevate(t testing.TB) {
	t.Helper()
	answer := ask(h.another(h.db), "operator", "", http.MethodPost, "/elevations", `{"class":"operate","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`)
	if answer.Code/100 != 2 {
		t.Fatalf("elevating: %d %s", answer.Code, answer.Body)
	}
}

// began returns a description of all operations.
func (h *harness) began(t *testing.T) []string {
	t.Helper()
	records, _, err := h.db.AdminRecords(t.Context(), database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, r := range records {
		list = append(list, fmt.Sprint(r.Operation.Value.Action, " of ", r.Operation.Value.Target.Kind, " ", r.Operation.Value.State))
	}
	return list
}

// TestSweepRequests kills admin before and after each of its writes while an engineer pauses, resumes and sizes a cluster and
// repeats unanswered requests with the same key. Each request must create one operation.
//
// The sweep was verified by hand: if the key is ignored, requests that were stored before the crash create two operations.
func TestSweepRequests(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		h := newPopulated(t)
		admin := h.startCrashing(t, d)
		h.elevate(t)
		for i, request := range []struct{ action, body string }{{"pause", `{"duration":"2h"}`}, {"resume", ""}, {"set-size", `{"size":"large"}`}} {
			answer, _ := admin.Send(func() *http.Request {
				return requestOf("operator", fmt.Sprint("key-", i), http.MethodPost, "/clusters/"+uid+"/"+request.action, request.body)
			})
			if answer.Code != http.StatusAccepted {
				t.Fatalf("%s: %d %s", request.action, answer.Code, answer.Body)
			}
		}
		return h.began(t)
	})
}

// TestRequestIsRepeated checks that a request with the same key returns the same operation whatever its state, and that a request
// without a key or with another key creates another operation.
func TestRequestIsRepeated(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	handler := h.another(h.db)
	pause := func(key, body string, want int) (id string) {
		t.Helper()
		answer := ask(handler, "operator", key, http.MethodPost, "/clusters/"+uid+"/pause", body)
		if answer.Code != want {
			t.Fatalf("%d, want %d: %s", answer.Code, want, answer.Body)
		}
		if want != http.StatusAccepted {
			return ""
		}
		var operation adminv1.Operation
		must.Do(t, json.Unmarshal(answer.Body.Bytes(), &operation))
		if answer.Header().Get("Location") != adminv1.Root+"/operations/"+operation.ID {
			t.Errorf("the operation %s is said to be at %s", operation.ID, answer.Header().Get("Location"))
		}
		return operation.ID
	}
	first := pause("k", `{"duration":"2h"}`, http.StatusAccepted)
	must.Do(t, h.execute(t.Context(), ""))
	if again := pause("k", `{"duration":"2h"}`, http.StatusAccepted); again != first {
		t.Errorf("the same request began %s, and then %s", first, again)
	}
	pause("k", `{"duration":"3h"}`, http.StatusConflict)
	pause("spaces are not printed", `{"duration":"2h"}`, http.StatusBadRequest)
	pause(strings.Repeat("k", 129), `{"duration":"2h"}`, http.StatusBadRequest)
	if other := pause("other", `{"duration":"2h"}`, http.StatusAccepted); other == first {
		t.Error("another key is the same operation")
	}
	pause("", `{"duration":"2h"}`, http.StatusAccepted)
	want := []string{"clusters.pause of cluster Accepted", "clusters.pause of cluster Accepted", "clusters.pause of cluster Succeeded"}
	if diff := cmp.Diff(want, h.began(t)); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}
