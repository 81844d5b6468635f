package drills

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// TestFiringAlertsAndSilences checks which alerts of a real Prometheus admin lists as firing, and silences in a real Alertmanager.
func TestFiringAlertsAndSilences(t *testing.T) {
	programs := observability(t)
	pending := rule.Rule{Alert: "Pending", Expr: "vector(1)", Labels: map[string]string{"severity": "page"}, For: "1h"}
	began := time.Now().Add(-time.Second)
	history := startPrometheus(t, programs, []rule.Rule{
		{Alert: alerts.Watchdog, Expr: "vector(1)", Labels: map[string]string{"severity": "heartbeat"}},
		{Alert: "OfShard", Expr: "vector(1)", Labels: map[string]string{"severity": "page", "shard": "mgmt-1"}},
		{Alert: "OfRegion", Expr: "vector(1)", Labels: map[string]string{"severity": "ticket"}},
		pending,
	})
	var firing []adminv1.Alert
	eventually.Soon(t, "the alerts fire", func() (err error) {
		firing, _, err = history.Firing(t.Context(), time.Now())
		if err == nil && len(firing) < 2 {
			err = fmt.Errorf("%d alerts fire", len(firing))
		}
		return err
	})

	for i := range firing {
		if since := firing[i].Since; since == nil || since.Before(began.Truncate(time.Second)) || since.After(time.Now()) {
			t.Errorf("%s fires since %v", firing[i].Name, since)
		}
		firing[i].Since = nil
	}
	want := []adminv1.Alert{{Name: "OfShard", Severity: "page", ProvisionShard: "mgmt-1", Labels: map[string]string{"severity": "page", "shard": "mgmt-1"}},
		{Name: "OfRegion", Severity: "ticket", Labels: map[string]string{"severity": "ticket"}}}
	if diff := cmp.Diff(want, firing); diff != "" {
		t.Errorf("firing (-want +got):\n%s", diff)
	}

	dir := t.TempDir()
	receivers := writeFile(t, dir, "alertmanager.yaml", "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
	manager := serve(t, t.Context(), filepath.Join(programs, "alertmanager"), "--config.file="+receivers, "--storage.path="+filepath.Join(dir, "alertmanager"), "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
	transport := must.Get(alerts.Transport(""))(t)
	silences := alerts.NewSilences("http://"+manager, transport)
	now := time.Now().UTC()
	id := must.Get(silences.Create(t.Context(), adminv1.Silence{Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: "OfShard"}, {Name: "shard", Value: "mgmt-1"}}, StartTime: now, EndTime: now.Add(time.Hour), CreatedBy: "oncall@example.com", Comment: "mgmt-1 is rebuilt (CHG-7)"}))(t)
	list, _, _, err := silences.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != id || list[0].State != adminv1.SilenceActive || list[0].Comment != "mgmt-1 is rebuilt (CHG-7)" {
		t.Fatalf("the silences are %v, %v", list, err)
	}
	alerts.MarkSilenced(firing, list)
	if len(firing[0].SilencedBy) != 1 || len(firing[1].SilencedBy) != 0 {
		t.Errorf("silenced are %v", firing)
	}
	if err := silences.End(t.Context(), id); err != nil {
		t.Error(err)
	}
	if list, _, _, err := silences.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("after the end: %v, %v", list, err)
	}
	if got, err := silences.Get(t.Context(), id); err != nil || got.State != adminv1.SilenceExpired {
		t.Errorf("the ended silence is %v, %v", got, err)
	}
}
