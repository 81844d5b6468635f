package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestAlerts(t *testing.T) {
	a := newSREs(t)
	began := day.AsTime()
	list := adminv1.AlertList{Time: began, More: true,
		Alerts: []adminv1.Alert{{Name: "AgentSilent", Severity: "page", ProvisionShard: "mgmt-1", Labels: map[string]string{"severity": "page", "shard": "mgmt-1"}, Since: &began, SilencedBy: []string{"s"}},
			{Name: "Slow", Severity: "ticket", Labels: map[string]string{"severity": "ticket"}}},
		Silences: []adminv1.Silence{{ID: "s", State: adminv1.SilenceActive, Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: "Agent.*", Regex: true}, {Name: "shard", Value: "mgmt-2", Negative: true}}, EndTime: began, CreatedBy: "kim", Comment: "mgmt-1 is rebuilt (CHG-7)"}}}
	a.shown["/alerts"] = list
	out := must.Get(a.hcpctl(t, "alert", "list"))(t)
	golden(t, "alerts.txt", out)

	for name, tc := range map[string]struct {
		list adminv1.AlertList
		err  string
		says []string
	}{
		"unknown alerts": {adminv1.AlertList{Silences: []adminv1.Silence{}, Unavailable: map[string]string{adminv1.UnavailableAlerts: "Prometheus did not answer."}}, "the firing alerts are unknown: Prometheus did not answer.", []string{"no silences"}},
		"no alerts":      {adminv1.AlertList{Alerts: []adminv1.Alert{}, Unavailable: map[string]string{adminv1.UnavailableSilences: "It is away."}}, "", []string{"no alert fires"}},
	} {
		a.shown["/alerts"] = tc.list
		out, err := a.hcpctl(t, "alert", "list")
		if (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range tc.says {
			if !strings.Contains(out, text) {
				t.Errorf("%s: %q does not contain %q", name, out, text)
			}
		}
		if tc.list.Alerts == nil && strings.Contains(out, "no alert fires") {
			t.Errorf("%s: %q", name, out)
		}
	}

	because := []string{"--reason", "mgmt-1 is rebuilt", "--ticket", "CHG-7"}
	for _, tc := range []struct {
		args       []string
		want, says string
	}{
		{[]string{"silence", "AgentSilent", "--label", "shard=mgmt-1", "--for", "1h"}, `POST /silences {"alert":"AgentSilent","labels":{"shard":"mgmt-1"},"duration":"1h","reason":"mgmt-1 is rebuilt","ticket":"CHG-7"}`, `alertname="AgentSilent" is silenced until`},
		{[]string{"unsilence", "s"}, `POST /silences/s/end {"reason":"mgmt-1 is rebuilt","ticket":"CHG-7"}`, `silence s of alertname="AgentSilent" is expired`},
	} {
		a.asked = nil
		out, err := a.hcpctl(t, append(append([]string{"alert"}, tc.args...), because...)...)
		if err != nil || !strings.Contains(out, tc.says) || !slices.Equal(a.asked, []string{tc.want}) {
			t.Errorf("%v: %v, it says %q and asked %q", tc.args, err, out, a.asked)
		}
	}
	if _, err := a.hcpctl(t, "alert", "silence", "AgentSilent", "--reason", "mgmt-1 is rebuilt"); err == nil {
		t.Error("a silence without a ticket")
	}
}
