package portal

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

const testSilence = "1a7e5c3b-8d2f-4b69-a0c4-5e6f7a8b9c05"

// fillAlerts sets the response about alerts and silences.
func (f *fakeAPI) fillAlerts(text string) {
	began := ago(7 * time.Minute)
	f.responses["/alerts"] = adminv1.AlertList{Time: testTime,
		Alerts: []adminv1.Alert{
			{Name: "AgentSilent", Severity: "page", ProvisionShard: "mgmt-1", Labels: map[string]string{"severity": "page", "shard": "mgmt-1"}, Since: &began, SilencedBy: []string{testSilence}},
			{Name: "ClusterUnavailable", Severity: "page", ClusterUID: testUID, Labels: map[string]string{"severity": "page", "cluster_uid": testUID}, Since: &began},
			{Name: text, Severity: text, Labels: map[string]string{"severity": text, "name": text}}},
		Silences: []adminv1.Silence{{ID: testSilence, State: adminv1.SilenceActive, Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: "AgentSilent"}, {Name: text, Value: text}},
			StartTime: began, EndTime: testTime.Add(time.Hour), CreatedBy: text, Comment: text}}}
	f.responses["POST /silences"] = adminv1.Silence{ID: testSilence}
	f.responses["POST /silences/"+testSilence+"/end"] = adminv1.Silence{ID: testSilence}
}

// TestUnknownAlertsAreStated checks that the page never shows that no alert fires if that is unknown.
func TestUnknownAlertsAreStated(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	const none, noSilence = "No alert fires.", "No alert is silenced."
	for name, tc := range map[string]struct {
		list             any
		contains, absent []string
	}{
		"nothing fires":       {adminv1.AlertList{Alerts: []adminv1.Alert{}, Silences: []adminv1.Silence{}}, []string{none, noSilence}, nil},
		"no Prometheus":       {adminv1.AlertList{Silences: []adminv1.Silence{}, Unavailable: map[string]string{"alerts": "its flag --prometheus-url is not set"}}, []string{"It is unknown which alerts fire", "--prometheus-url", noSilence}, []string{none}},
		"no Alertmanager":     {adminv1.AlertList{Alerts: []adminv1.Alert{}, Unavailable: map[string]string{"silences": "its flag --alertmanager-url is not set"}}, []string{none, "--alertmanager-url"}, []string{noSilence}},
		"an empty response":   {struct{}{}, []string{"It is unknown which alerts fire"}, []string{none, noSilence}},
		"malformed silences":  {adminv1.AlertList{Alerts: []adminv1.Alert{}, Silences: []adminv1.Silence{{ID: testSilence}}, MoreSilences: true, IgnoredSilences: wire.Ignored{Count: 1, Reasons: []string{"silences[1]"}}}, []string{"malformed elements (1): silences[1]", "Only the first 1 silences are listed."}, nil},
		"there are even more": {adminv1.AlertList{Alerts: []adminv1.Alert{{Name: "A"}}, More: true}, []string{"Only the first 1 alerts are listed."}, []string{none}},
	} {
		h.api.responses["/alerts"] = tc.list
		page := b.get("/alerts")
		for _, text := range tc.contains {
			if !strings.Contains(page.body, text) {
				t.Errorf("%s: the page does not contain %q: %s", name, text, page.body)
			}
		}
		for _, text := range tc.absent {
			if strings.Contains(page.body, text) {
				t.Errorf("%s: the page contains %q", name, text)
			}
		}
	}
}

// TestSilences checks the request of a silence and of its end, and that a refused form keeps what was entered.
func TestSilences(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	form := formValues(t, b.get("/silences/new?alert=AgentSilent&labels=shard%3Dmgmt-1").body)
	form.Set("reason", "mgmt-1 is rebuilt")
	form.Set("ticket", "CHG-7")
	if response := b.post("/silences", form); response.location() != "/alerts" {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	because := url.Values{"reason": {"mgmt-1 is back"}, "ticket": {"CHG-7"}}
	if response := b.post("/silences/"+testSilence+"/end", because); response.location() != "/alerts" {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	want := []apiRequest{
		{Method: http.MethodPost, Path: "/silences", Key: form.Get("key"), Person: "oncall@example.com", Body: `{"alert":"AgentSilent","labels":{"shard":"mgmt-1"},"duration":"2h","reason":"mgmt-1 is rebuilt","ticket":"CHG-7"}`},
		{Method: http.MethodPost, Path: "/silences/" + testSilence + "/end", Person: "oncall@example.com", Body: `{"reason":"mgmt-1 is back","ticket":"CHG-7"}`}}
	if diff := cmp.Diff(want, h.api.requests); diff != "" || form.Get("key") == "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	form.Set("labels", "mgmt-1")
	if response := b.post("/silences", form); response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(response.body, `value="mgmt-1 is rebuilt"`) || !strings.Contains(response.body, `aria-invalid="true"`) {
		t.Errorf("labels without a value: %s: %s", response.Status, response.body)
	}
	h.api.refused["/silences"] = http.StatusBadRequest
	form.Set("labels", "")
	if response := b.post("/silences", form); response.StatusCode != http.StatusBadRequest || !strings.Contains(response.body, "The request was &lt;refused&gt;.") {
		t.Errorf("a refused silence: %s", response.Status)
	}
	if response := b.get("/silences/unknown/end"); response.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown silence: %s", response.Status)
	}
}
