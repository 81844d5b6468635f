package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// everyRequestIsRecorded checks the audit chain of a run of all cases: each change has a record before it and one with its outcome,
// each sensitive read and each refusal has a record, and no record has a secret.
func everyRequestIsRecorded(t *testing.T, trail *audittest.Trail, secrets map[string]string) {
	t.Helper()
	outcomes, begun := map[string][]string{}, map[string]bool{}
	for _, r := range trail.Records(t) {
		if r.Outcome == audit.Started {
			begun[r.Request] = true
		} else {
			outcomes[r.Action] = append(outcomes[r.Action], r.Outcome)
		}
		if r.Action == "authenticate" {
			outcomes[r.Action] = append(outcomes[r.Action], r.Outcome)
			if r.Outcome != audit.Refused || r.Person != (audit.Person{}) || r.Object.ID == "" {
				t.Errorf("the record of a request without a valid token is %+v", r)
			}
			continue
		}
		if r.Person.Name == "" || r.Person.ObjectID == "" || r.Person.Role == "" || r.Request == "" {
			t.Errorf("a record does not name the person, the role or the request: %+v", r)
		}
		if r.Outcome == audit.Accepted && (!begun[r.Request] || r.Reason == "" || r.Ticket == "" || r.Object.ID == "" || r.Operation == "") {
			t.Errorf("a record of a change is incomplete, or no record was before the change: %+v", r)
		}
		text := must.Get(json.Marshal(r))(t)
		for what, secret := range secrets {
			if strings.Contains(string(text), secret) {
				t.Errorf("a record has %s: %s", what, text)
			}
		}
	}
	for _, route := range server.Routes() {
		got := outcomes[route.Name]
		switch {
		case route.Method != http.MethodGet && !slices.Contains(got, audit.Accepted):
			t.Errorf("%s: a change is not recorded: %v", route.Name, got)
		case route.Sensitive && !slices.Contains(got, audit.Succeeded):
			t.Errorf("%s: a sensitive read is not recorded: %v", route.Name, got)
		case !slices.Contains(got, audit.Refused):
			t.Errorf("%s: a refusal is not recorded: %v", route.Name, got)
		case route.Method == http.MethodGet && !route.Sensitive && slices.Contains(got, audit.Succeeded):
			t.Errorf("%s: a read that is not sensitive is recorded", route.Name)
		}
	}
	if !slices.Contains(outcomes["authenticate"], audit.Refused) {
		t.Error("requests without a valid token are not recorded")
	}
	for _, name := range []string{"clusters.dump", "credentials.get", "credentials.list", "works.list"} {
		if !slices.Contains(outcomes[name], audit.Succeeded) {
			t.Errorf("%s is not audited", name)
		}
	}
	trail.Verify(t)
}

// TestAccessRecordsListWhoTouchedACluster reads the exported records about a cluster in pages. A record that somebody else has appended is not confirmed.
func TestAccessRecordsListWhoTouchedACluster(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	handler := h.another(h.db)
	mustAsk(t, http.StatusOK, handler, "reader", "", http.MethodGet, "/clusters/"+uid+"/dump", "")
	if got := ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"1h"}`); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	h.trail.Stop() // the sink has all records now
	encoded := must.Get(audit.EncodeRecord(audit.Record{Action: "clusters.resume", Outcome: audit.Accepted, Person: audit.Person{Name: "mallory@example.com"}, Object: audit.Object{ID: uid, Cluster: uid}}))(t)
	size := must.Get(h.trail.Reader().Size(t.Context(), h.trail.Name()))(t)
	forged, _ := audit.AppendRecord(nil, audit.Head{Writer: h.trail.Name(), Time: time.Now()}, audit.Position{}, audit.Entry{Record: encoded})
	must.Do(t, h.trail.Reader().(sink.Log).Append(t.Context(), h.trail.Name(), size, forged))
	var got []string
	for path := "/clusters/" + uid + "/access-records?pageSize=1"; path != ""; {
		answer := ask(handler, "reader", "", http.MethodGet, path, "")
		var page adminv1.AccessRecordList
		if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil || answer.Code != http.StatusOK || len(page.Value) > 1 {
			t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
		}
		for _, r := range page.Value {
			p := r.Properties
			got = append(got, strings.Join([]string{p.Action, p.Outcome, p.Person, p.Reason, p.Ticket, p.ObjectID}, ", "))
			if r.ID != resourceID+"/auditRecords/"+r.Name || r.Type != adminv1.AccessRecordType || p.Time.IsZero() || p.Unconfirmed != (p.Person == "mallory@example.com") {
				t.Errorf("the record is %+v", r)
			}
		}
		_, path, _ = strings.Cut(page.NextLink, adminv1.Root)
	}
	want := []string{
		"clusters.resume, accepted, mallory@example.com, , , " + uid,
		"clusters.pause, accepted, operator@example.com, the customer asked for it, INC-1, " + uid,
		"clusters.dump, succeeded, reader@example.com, , , " + uid,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := ask(handler, "reader", "", http.MethodGet, "/clusters/"+uid+"/access-records?pageToken=x", ""); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), `"pageToken"`) {
		t.Errorf("a foreign token: %d %s", got.Code, got.Body)
	}
}

// TestFullAuditQueueRejectsWhatMustBeAudited fills the audit queue while the sink is away. Nothing that must be audited may happen or
// be returned then; other reads go on.
func TestFullAuditQueueRejectsWhatMustBeAudited(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.elevate(t)
	trail := audittest.New(t, "admin", writer.MinBytes)
	trail.SinkAway(true)
	config := h.config
	config.Audit, config.Refusals, config.Metrics = trail, refusals.New(trail), prometheus.NewRegistry()
	handler := server.New(config)
	dumps := 0
	for ask(handler, "reader", "", http.MethodGet, "/clusters/"+uid+"/dump", "").Code == http.StatusOK {
		dumps++
	}
	for trail.Append(t.Context(), audit.Record{Action: "fill"}) == nil {
		continue // the rest of the space
	}
	before := len(h.began(t))
	for what, answer := range map[string]struct {
		engineer, method, path, body string
		want                         int
	}{
		"a sensitive read": {"reader", http.MethodGet, "/clusters/" + uid + "/dump", "", http.StatusServiceUnavailable},
		"a change":         {"operator", http.MethodPost, "/clusters/" + uid + "/pause", `{"duration":"1h"}`, http.StatusServiceUnavailable},
		"an elevation":     {"operator", http.MethodPost, "/elevations", `{"class":"operate","reason":"the customer asked for it","ticket":"INC-1","duration":"1h"}`, http.StatusServiceUnavailable},
		"a refusal":        {"guest", http.MethodGet, "/clusters/" + uid, "", http.StatusForbidden},
		"another read":     {"reader", http.MethodGet, "/clusters/" + uid, "", http.StatusOK},
	} {
		got := ask(handler, answer.engineer, "", answer.method, answer.path, answer.body)
		if got.Code != answer.want {
			t.Errorf("%s: %d %s", what, got.Code, got.Body)
		}
		var failure adminv1.Failure
		if answer.want == http.StatusServiceUnavailable && (json.Unmarshal(got.Body.Bytes(), &failure) != nil ||
			!strings.Contains(failure.Error.Message, "cannot be audited") || got.Header().Get("Retry-After") == "" || strings.Contains(got.Body.String(), clusterID)) {
			t.Errorf("%s: the response is %s", what, got.Body)
		}
	}
	if after := h.began(t); len(after) != before || dumps == 0 {
		t.Errorf("after %d dumps the operations are %v", dumps, after)
	}
	trail.SinkAway(false)
	for ask(handler, "reader", "", http.MethodGet, "/clusters/"+uid+"/dump", "").Code != http.StatusOK {
		if t.Context().Err() != nil {
			t.Fatal("the queue was not exported")
		}
	}
	if report := trail.Verify(t); report.Chains[0].Records < dumps {
		t.Errorf("%d dumps were returned, the sink has %+v", dumps, report.Chains[0])
	}
}
