package drills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// concernAlert is the alert that names a concern of clusters, in its label concern.
const concernAlert = "ClustersWithConcern"

// TestAlertsNameCauses breaks the APIs of five customers at once, each in another way, and requires for each way that a real Prometheus has
// monitor's series of the concern that names the cause and no other, that a real Alertmanager sends the alert of this concern, that the
// explanation and the journal have it, and that the timeline has the concern and the alert. All of them must end with the fault.
func TestAlertsNameCauses(t *testing.T) {
	nightly.Only(t)
	programs := observability(t)
	test.DependOnCode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	r := startObserved(t, ctx, 1)
	webhook := &received{alerts: map[string]notification{}, arrived: map[string]time.Time{}}
	server := httptest.NewServer(webhook)
	t.Cleanup(server.Close)
	observed := startMonitoring(t, ctx, programs, r.Endpoints().Ops, server.URL, strings.TrimPrefix(r.Endpoints().Prometheus, "http://"))
	r.customer = must.Get(customer.New(ctx, r.Endpoints(), "11111111-0000-0000-0000-0000000000d1", "causes"))(t)
	t.Cleanup(func() { _ = r.customer.Close() })
	t.Run("faults", func(t *testing.T) {
		for _, cause := range fault.Causes() {
			t.Run(cause.Name, func(t *testing.T) {
				t.Parallel()
				r.nameCause(t, ctx, &cause, webhook, observed.prometheus)
			})
		}
	})
	var expectedConcerns []string
	for _, cause := range fault.Causes() {
		expectedConcerns = append(expectedConcerns, cause.Concern.Kind)
	}
	for _, concern := range webhook.labels(concernAlert, "concern") {
		if !slices.Contains(expectedConcerns, concern) {
			t.Errorf("the alert %s named the concern %s, which no fault has", concernAlert, concern)
		}
	}
}

// startObserved starts a region with a number of management clusters for a Prometheus that the test starts at the address of
// Endpoints().Prometheus, where admin reads which alerts fired.
func startObserved(t *testing.T, ctx context.Context, managementClusters int) *region {
	t.Helper()
	return &region{Region: fault.Start(t, ctx, local.Config{ManagementClusters: managementClusters, Build: test.BuildRegion(), Faults: true,
		With: []string{local.WithObservability}, Without: []string{"prometheus", "alertmanager"}})}
}

// nameCause creates a cluster, breaks its API, and checks what names the cause while the fault lasts and after its end.
func (r *region) nameCause(t *testing.T, ctx context.Context, cause *fault.Cause, webhook *received, prometheus string) {
	t.Helper()
	name, kind := "broken-"+cause.Name, cause.Concern.Kind
	id := r.customer.ClusterID(name)
	must.Get(r.customer.Put(ctx, id, r.customer.ClusterBody(name)))(t)
	cluster := r.lookUp(t, ctx, name)
	server := must.Get(fault.Find(r.Endpoints(), r.Dir, cluster))(t)
	eventually.Soon(t, name+" is available", func() error { return r.explains(ctx, id, nil) })
	running := must.Get(cause.Begin(ctx, server))(t)
	begun := time.Now()
	defer func() {
		if err := running.End(ctx); err != nil {
			t.Error(err)
		}
	}()

	eventually.Soon(t, "the explanation names "+kind, func() error {
		return errors.Join(running.Provoke(ctx, false), r.explains(ctx, id, cause))
	})
	t.Logf("%s: the explanation names %s after %s", cause.Name, kind, time.Since(begun).Round(time.Second))
	alerted := alert(concernAlert, "concern", kind, "severity", "ticket")
	eventually.Soon(t, concernAlert+" of "+kind+" arrives", func() error {
		if err := running.Provoke(ctx, true); err != nil {
			return err
		}
		if status := webhook.status(alerted); status != "firing" {
			return fmt.Errorf("its status is %q", status)
		}
		return nil
	})
	t.Logf("%s: the alert arrived after %s", cause.Name, time.Since(begun).Round(time.Second))
	eventually.Soon(t, "the timeline has the concern and its alert", func() error {
		if err := errors.Join(running.Provoke(ctx, true), r.concernOf(ctx, prometheus, cluster.UID, kind)); err != nil {
			return err
		}
		return r.timelineNames(ctx, id, kind, " began", concernAlert)
	})

	must.Do(t, running.End(ctx))
	ended := time.Now()
	eventually.Soon(t, name+" is available again", func() error { return r.explains(ctx, id, nil) })
	eventually.Soon(t, concernAlert+" of "+kind+" ends", func() error {
		if status := webhook.status(alerted); status != "resolved" {
			return fmt.Errorf("its status is %q", status)
		}
		return r.timelineNames(ctx, id, kind, " ended", concernAlert)
	})
	t.Logf("%s: the alert ended after %s", cause.Name, time.Since(ended).Round(time.Second))
	text := must.Get(r.hcpctlOutput(ctx, "cluster", "journal", id, "-o", "json"))(t)
	var journal adminv1.Journal
	must.Do(t, json.Unmarshal([]byte(text), &journal))
	for _, event := range []string{adminv1.JournalConcernBegan, adminv1.JournalConcernEnded} {
		if !slices.ContainsFunc(journal.Items, func(e adminv1.JournalEntry) bool { return e.Event == event && e.Kind == kind }) {
			t.Errorf("the journal has no %s %s: %+v", event, kind, journal.Items)
		}
	}
	// On a busy machine, an API that has just started can be unreachable for a moment before the fault.
	during := slices.DeleteFunc(journal.Items, func(e adminv1.JournalEntry) bool { return e.Time.Before(begun) })
	if misleading := cause.Misleading(during); len(misleading) > 0 {
		t.Errorf("monitor also named %v: %+v", misleading, during)
	}
}

// explains returns an error unless the explanation of a cluster has the concern of a cause and its state of the API, or calls the API available
// without a cause.
func (r *region) explains(ctx context.Context, id string, cause *fault.Cause) error {
	text, err := r.hcpctlOutput(ctx, "explain", id, "-o", "json")
	if err != nil {
		return err
	}
	var explained adminv1.Explanation
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		return err
	}
	api, want := adminv1.HealthAvailable, []adminv1.HealthConcern(nil)
	if cause != nil {
		api, want = cause.API, []adminv1.HealthConcern{cause.Concern}
	}
	if explained.Health == nil || explained.Health.API != api || !slices.EqualFunc(explained.Health.Concerns, want, func(got, want adminv1.HealthConcern) bool {
		return got.Kind == want.Kind && got.Summary == want.Summary && strings.Contains(strings.Join(strings.Fields(explained.Text()), " "), want.Summary)
	}) {
		return fmt.Errorf("monitor states %+v, want %s %+v:\n%s", explained.Health, api, want, explained.Text())
	}
	return nil
}

// concernOf returns an error unless Prometheus has exactly one concern of a cluster, of a kind and at the fault of the service.
func (r *region) concernOf(ctx context.Context, prometheus, uid, kind string) error {
	var found struct {
		Result []struct{ Metric map[string]string }
	}
	if err := query(ctx, prometheus+"/api/v1/query", url.Values{"query": {fmt.Sprintf("monitor_cluster_concern{cluster_uid=%q}", uid)}}, &found); err != nil {
		return err
	}
	if len(found.Result) != 1 || found.Result[0].Metric["concern"] != kind || found.Result[0].Metric["fault"] != "service" {
		return fmt.Errorf("Prometheus has the concerns %v", found.Result)
	}
	return nil
}

// timelineNames returns an error unless the timeline of a cluster has a concern with an event, and an alert that names the concern.
func (r *region) timelineNames(ctx context.Context, id, kind, event, alertName string) error {
	text, err := r.hcpctlOutput(ctx, "timeline", id, "-o", "json")
	if err != nil {
		return err
	}
	var timeline adminv1.Timeline
	if err := json.Unmarshal([]byte(text), &timeline); err != nil {
		return err
	}
	has := func(of adminv1.TimelineKind, parts ...string) bool {
		return slices.ContainsFunc(timeline.Entries, func(e adminv1.TimelineEntry) bool {
			return e.Kind == of && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(e.Summary, part) })
		})
	}
	if timeline.Partial || !has(adminv1.TimelineConcern, kind+event) || !has(adminv1.TimelineAlert, alertName, kind) {
		return fmt.Errorf("the timeline lacks the concern %s that%s or its alert; layers without an answer: %v; entries: %+v", kind, event, timeline.Unavailable, timeline.Entries)
	}
	return nil
}

// labels returns the values of a label of all alerts with a name that arrived.
func (r *received) labels(alertName, label string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var values []string
	for _, a := range r.alerts {
		if a.Labels["alertname"] == alertName {
			values = append(values, a.Labels[label])
		}
	}
	return values
}
