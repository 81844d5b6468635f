package drills

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test"
)

// TestPlannedOperationSilencesAlerts drains an empty management cluster and terminates its agent. The alerts about the agent must reach
// Alertmanager, and nobody may be notified of them, until the drain is cancelled.
func TestPlannedOperationSilencesAlerts(t *testing.T) {
	programs := observability(t)
	test.DependOnCode(t)
	nightly.Only(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	const shard = "mgmt-2"
	r := startObserved(t, ctx, 2)
	webhook := &received{alerts: map[string]notification{}, arrived: map[string]time.Time{}}
	server := httptest.NewServer(webhook)
	t.Cleanup(server.Close)
	observed := startMonitoring(t, ctx, programs, r.Endpoints().Ops, server.URL, "127.0.0.1:0")

	r.mustHcpctl(t, ctx, "shard", "drain", shard, "--reason", "kernel update", "--ticket", "CHG-7")
	eventually.Soon(t, "the planned operation is known", func() error { return observed.fires(ctx, alert("ShardOutOfService", "shard", shard)) })
	away := alert("ComponentAway", "shard", shard, "layer", "maestro-agent")
	begun := time.Now()
	end := hold(shard+"-maestro-agent")(t, ctx, r)
	for _, e := range []expected{away, alert("AgentSilent", "shard", shard)} {
		eventually.Soon(t, e.Name+" is inhibited", func() error { return observed.inhibited(ctx, e) })
		t.Logf("%s was inhibited after %s", e.Name, time.Since(begun).Round(time.Second))
		if webhook.since(e, begun) {
			t.Errorf("%s arrived during the planned operation", e.Name)
		}
	}

	r.mustHcpctl(t, ctx, "shard", "uncordon", shard, "--reason", "the drain is cancelled", "--ticket", "CHG-7")
	eventually.Soon(t, "the alert arrives without the planned operation", func() error {
		if status := webhook.status(away); status != "firing" {
			return fmt.Errorf("its status is %q", status)
		}
		return nil
	})

	end()
	eventually.Soon(t, "the alert ends", func() error {
		if status := webhook.status(away); status != "resolved" {
			return fmt.Errorf("its status is %q", status)
		}
		return nil
	})
}

// fires returns an error unless an alert fires in Prometheus.
func (m *monitoring) fires(ctx context.Context, e expected) error {
	var found struct {
		Result []struct{ Metric map[string]string }
	}
	expression := fmt.Sprintf("ALERTS{alertname=%q,alertstate=\"firing\"}", e.Name)
	if err := query(ctx, m.prometheus+"/api/v1/query", url.Values{"query": {expression}}, &found); err != nil {
		return err
	}
	for _, each := range found.Result {
		if (notification{Labels: each.Metric}).matches(e) {
			return nil
		}
	}
	return fmt.Errorf("Prometheus has %v", found.Result)
}
