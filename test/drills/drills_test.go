// Package drills proves alerts in a running region: a real Prometheus scrapes its processes and evaluates the rules of the repository, a real
// Alertmanager sends what fires to a webhook, and each drill injects a fault that must make its alert arrive, and arrive as resolved when the
// fault has ended. `make drills` builds both programs and runs the drills; without them the test is skipped.
package drills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// deadline bounds each wait, on a busy machine.
const deadline = 4 * time.Minute

// drill is a fault and the alert that it must cause.
type drill struct {
	alert string
	// labels are those that the alert must have.
	labels map[string]string
	// process is terminated, and not restarted until the alert has arrived.
	process string
}

// The drills. Each one begins when the alerts of the one before have ended.
var drills = []drill{
	{alert: "ComponentAway", labels: map[string]string{"layer": "maestro-server"}, process: "maestro-server"},
	{alert: "AgentSilent", labels: map[string]string{"shard": "mgmt-1"}, process: "mgmt-1-maestro-agent"},
	{alert: "ComponentsNotObserved", process: "admin"},
}

// received are the alerts that the webhook of Alertmanager has received, by name and labels.
type received struct {
	mu     sync.Mutex
	alerts map[string]notification
}

// notification is an alert in the form of Alertmanager's webhook.
type notification struct {
	Status string            `json:"status"`
	Labels map[string]string `json:"labels"`
}

// ServeHTTP receives a group of alerts.
func (r *received) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	var group struct {
		Alerts []notification `json:"alerts"`
	}
	if json.NewDecoder(request.Body).Decode(&group) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, alert := range group.Alerts {
		r.alerts[fmt.Sprint(alert.Labels)] = alert
	}
}

// status returns the status of an alert: firing, resolved, or empty if it has not arrived.
func (r *received) status(alert string, labels map[string]string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := ""
	for _, a := range r.alerts {
		if a.Labels["alertname"] != alert {
			continue
		}
		matches := true
		for name, value := range labels {
			matches = matches && a.Labels[name] == value
		}
		if matches && found != "firing" {
			found = a.Status
		}
	}
	return found
}

// firing returns the pages that fire.
func (r *received) firing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]bool{}
	for _, a := range r.alerts {
		if a.Status == "firing" && a.Labels["severity"] == "page" {
			names[a.Labels["alertname"]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestDrills runs all drills in one region.
func TestDrills(t *testing.T) {
	programs := os.Getenv("HCPMESH_OBSERVABILITY")
	if programs == "" {
		t.Skip("HCPMESH_OBSERVABILITY is not set: make drills builds Prometheus and Alertmanager and runs this test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	dir := t.TempDir()
	t.Cleanup(func() {
		// PostgreSQL runs as another user, who cannot enter the folder, so its data is elsewhere.
		if err := local.Purge(dir); err != nil {
			t.Error(err)
		}
	})
	freePorts := 0
	region, err := local.Start(ctx, local.Config{StateDir: dir, BasePort: &freePorts, ManagementClusters: 1, Build: true, Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(region.Close)

	webhook := &received{alerts: map[string]notification{}}
	server := httptest.NewServer(webhook)
	t.Cleanup(server.Close)
	startMonitoring(t, ctx, programs, region.Endpoints().Ops, server.URL)

	eventually.Holds(t, deadline, "the alert that always fires arrives", func() error {
		if status := webhook.status("Watchdog", nil); status != "firing" {
			return fmt.Errorf("its status is %q", status)
		}
		return nil
	})
	var table strings.Builder
	for _, d := range drills {
		eventually.Holds(t, deadline, "no page fires before the drill", func() error {
			if pages := webhook.firing(); len(pages) > 0 {
				return fmt.Errorf("%v fire", pages)
			}
			return nil
		})
		begun := time.Now()
		release, err := region.Hold(ctx, d.process)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		await := func(want string) time.Duration {
			eventually.Holds(t, deadline, d.alert+" arrives as "+want, func() error {
				if status := webhook.status(d.alert, d.labels); status != want {
					return errors.New("its status is " + status)
				}
				return nil
			})
			return time.Since(begun).Round(time.Second)
		}
		fired := await("firing")
		pages := webhook.firing()
		begun = time.Now()
		release()
		fmt.Fprintf(&table, "| %s | %s is away | %s | %s | %v |\n", d.alert, d.process, fired, await("resolved"), pages)
	}
	t.Logf("times on a scale of 1 to %d, except for the limits in seconds that metrics have\n| alert | fault | fired after | resolved after | pages meanwhile |\n|---|---|---|---|---|\n%s", scale, table.String())
}

// root returns the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
