package alerts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts/alertmanagertest"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// prometheus serves the results of the queries as Prometheus does. The tests in test/drills have a real one.
func prometheus(t *testing.T, results map[string][]map[string]any) *History {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, known := results[r.FormValue("query")]
		if !known {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
	}))
	t.Cleanup(server.Close)
	history, err := New(server.URL, server.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	return history
}

// sample returns an element of a vector.
func sample(value string, labels ...string) map[string]any {
	metric := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		metric[labels[i]] = labels[i+1]
	}
	return map[string]any{"metric": metric, "value": []any{0, value}}
}

func TestFiringAlerts(t *testing.T) {
	watchdog := sample("1", "__name__", "ALERTS", "alertname", Watchdog, "alertstate", "firing", "severity", "heartbeat")
	silent := sample("1", "__name__", "ALERTS", "alertname", "AgentSilent", "alertstate", "firing", "severity", "page", "shard", "mgmt-1")
	slow := sample("1", "__name__", "ALERTS", "alertname", "Slow", "alertstate", "firing", "severity", "ticket", "cluster_uid", "u")
	older := sample("1", "__name__", "ALERTS", "alertname", "Older", "alertstate", "firing", "severity", "ticket")
	since := []map[string]any{
		sample("60", "__name__", "ALERTS_FOR_STATE", "alertname", "AgentSilent", "severity", "page", "shard", "mgmt-1"),
		sample("50", "__name__", "ALERTS_FOR_STATE", "alertname", "AgentSilent", "severity", "page", "shard", "mgmt-2"),
		sample("40", "__name__", "ALERTS_FOR_STATE", "alertname", "Older", "severity", "ticket")}
	history := prometheus(t, map[string][]map[string]any{firingQuery: {slow, watchdog, silent, older}, sinceQuery: since})
	got, more, err := history.Firing(t.Context(), minute(0))
	if err != nil || more {
		t.Fatal(err, more)
	}
	at := func(seconds int64) *time.Time { began := time.Unix(seconds, 0).UTC(); return &began }
	want := []adminv1.Alert{
		{Name: "AgentSilent", Severity: "page", ProvisionShard: "mgmt-1", Labels: map[string]string{"severity": "page", "shard": "mgmt-1"}, Since: at(60)},
		{Name: "Older", Severity: "ticket", Labels: map[string]string{"severity": "ticket"}, Since: at(40)},
		{Name: "Slow", Severity: "ticket", ClusterUID: "u", Labels: map[string]string{"severity": "ticket", "cluster_uid": "u"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUnknownAlertsAreNotNone checks that a Prometheus that does not answer, or does not evaluate alerts, is an error and not an empty list.
func TestUnknownAlertsAreNotNone(t *testing.T) {
	watchdog := sample("1", "alertname", Watchdog, "alertstate", "firing")
	for name, results := range map[string]map[string][]map[string]any{
		"no answer":                     {},
		"no rules are evaluated":        {firingQuery: {}, sinceQuery: {}},
		"the second query fails":        {firingQuery: {watchdog}},
		"others fire, not the Watchdog": {firingQuery: {sample("1", "alertname", "Other", "alertstate", "firing")}, sinceQuery: {}},
	} {
		if got, _, err := prometheus(t, results).Firing(t.Context(), minute(0)); apierror.KindOf(err) != apierror.Unavailable || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, _, err := prometheus(t, map[string][]map[string]any{firingQuery: {watchdog}, sinceQuery: {}}).Firing(t.Context(), minute(0)); err != nil || got == nil || len(got) != 0 {
		t.Errorf("nothing but the Watchdog fires: %v, %v", got, err)
	}
}

func TestSilencesOfAlertmanager(t *testing.T) {
	server := httptest.NewServer(&alertmanagertest.Alertmanager{})
	defer server.Close()
	silences, ctx := NewSilences(server.URL+"/", server.Client().Transport), t.Context()
	wanted := adminv1.Silence{Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: "AgentSilent"}, {Name: "shard", Value: "mgmt-1"}}, StartTime: time.Now().UTC().Truncate(time.Second), EndTime: time.Now().UTC().Add(time.Hour).Truncate(time.Second),
		CreatedBy: "oncall@example.com", Comment: "mgmt-1 is rebuilt (CHG-7)"}
	id, err := silences.Create(ctx, wanted)
	if err != nil {
		t.Fatal(err)
	}
	wanted.ID, wanted.State = id, adminv1.SilenceActive
	list, _, _, err := silences.List(ctx)
	if diff := cmp.Diff([]adminv1.Silence{wanted}, list); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := silences.End(ctx, id); err != nil {
		t.Error(err)
	}
	if list, _, _, err := silences.List(ctx); err != nil || list == nil || len(list) > 0 {
		t.Errorf("after the end: %v, %v", list, err)
	}
	if got, err := silences.Get(ctx, id); err != nil || got.State != adminv1.SilenceExpired {
		t.Errorf("the ended silence is %v, %v", got, err)
	}
	if err := silences.End(ctx, "none"); apierror.KindOf(err) != apierror.NotFound {
		t.Errorf("an unknown silence: %v", err)
	}
	if _, err := silences.Create(ctx, adminv1.Silence{EndTime: wanted.EndTime}); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("a silence of everything: %v", err)
	}
}

// TestMalformedSilenceHidesNoOther checks that malformed silences are named, and that those that end first are listed of more than a list has.
func TestMalformedSilenceHidesNoOther(t *testing.T) {
	const count = 2500
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id":"no state"},{"id":"no time","status":{"state":"active"},"endsAt":"tomorrow"},7`)
		for i := range count {
			fmt.Fprintf(w, `,{"id":"%04d","status":{"state":"active"},"endsAt":%q}`, i, minute(count-i).Format(time.RFC3339))
		}
		fmt.Fprint(w, `,{"id":"ended","status":{"state":"expired"}},{"id":"","status":{"state":"active"}}]`)
	}))
	defer server.Close()
	list, more, ignored, err := NewSilences(server.URL, server.Client().Transport).List(t.Context())
	if err != nil || len(list) != maxSilences || !more || list[0].ID != "2499" || list[999].ID != "1500" {
		t.Errorf("%d silences, more %v: %v", len(list), more, err)
	}
	if ignored.Count != 4 || !strings.HasPrefix(ignored.Reasons[0], `silences[0] "no state": `) || !strings.HasPrefix(ignored.Reasons[1], `silences[1] "no time": `) {
		t.Errorf("malformed: %v", ignored)
	}
}

func TestMarkSilenced(t *testing.T) {
	alert := adminv1.Alert{Name: "AgentSilent", Labels: map[string]string{"shard": "mgmt-1"}}
	matcher := func(name, value string) adminv1.SilenceMatcher {
		return adminv1.SilenceMatcher{Name: name, Value: value}
	}
	for name, tc := range map[string]struct {
		state    adminv1.SilenceState
		matchers []adminv1.SilenceMatcher
		want     bool
	}{
		"by name":            {adminv1.SilenceActive, []adminv1.SilenceMatcher{matcher("alertname", "AgentSilent")}, true},
		"by name and label":  {adminv1.SilenceActive, []adminv1.SilenceMatcher{matcher("alertname", "AgentSilent"), matcher("shard", "mgmt-1")}, true},
		"another label":      {adminv1.SilenceActive, []adminv1.SilenceMatcher{matcher("alertname", "AgentSilent"), matcher("shard", "mgmt-2")}, false},
		"an absent label":    {adminv1.SilenceActive, []adminv1.SilenceMatcher{matcher("cluster_uid", "")}, true},
		"an expression":      {adminv1.SilenceActive, []adminv1.SilenceMatcher{{Name: "alertname", Value: "Agent.*", Regex: true}}, true},
		"a part":             {adminv1.SilenceActive, []adminv1.SilenceMatcher{{Name: "alertname", Value: "Agent", Regex: true}}, false},
		"a wrong expression": {adminv1.SilenceActive, []adminv1.SilenceMatcher{{Name: "alertname", Value: "(", Regex: true}}, false},
		"not this shard":     {adminv1.SilenceActive, []adminv1.SilenceMatcher{{Name: "shard", Value: "mgmt-1", Negative: true}}, false},
		"not another shard":  {adminv1.SilenceActive, []adminv1.SilenceMatcher{{Name: "shard", Value: "mgmt-2", Negative: true}}, true},
		"not begun":          {adminv1.SilencePending, []adminv1.SilenceMatcher{matcher("alertname", "AgentSilent")}, false},
		"nothing":            {adminv1.SilenceActive, nil, false},
	} {
		firing := []adminv1.Alert{alert}
		MarkSilenced(firing, []adminv1.Silence{{ID: "s", State: tc.state, Matchers: tc.matchers}})
		if got := len(firing[0].SilencedBy) == 1; got != tc.want {
			t.Errorf("%s: silenced is %t, want %t", name, got, tc.want)
		}
	}
}
