package drills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/boards"
)

// TestRegionWithObservability starts a region with Prometheus and Alertmanager and one process of ours. Prometheus must scrape that process,
// have all alerts, send what fires to Alertmanager, and answer the queries of all dashboards.
func TestRegionWithObservability(t *testing.T) {
	observability(t)
	test.DependOnCode(t)
	config := local.Config{ManagementClusters: 1, With: []string{local.WithObservability}}
	config.Without = slices.DeleteFunc(config.ProcessNames(), func(name string) bool {
		return slices.Contains([]string{"update-graph", "prometheus", "alertmanager"}, name)
	})
	region := fault.Start(t, t.Context(), config)
	for _, process := range []string{"alertmanager", "prometheus"} {
		must.Do(t, region.AwaitReady(t.Context(), process))
	}
	e := region.Endpoints()
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Type string }
		}
	}
	must.Do(t, query(t.Context(), e.Prometheus+"/api/v1/rules", nil, &rules))
	loaded := map[string]bool{}
	for _, group := range rules.Groups {
		for _, each := range group.Rules {
			loaded[each.Name] = true
		}
	}
	for _, file := range ruleFiles(t) {
		for _, each := range file.Alerts() {
			if !loaded[each.Alert] {
				t.Errorf("Prometheus has no alert %s", each.Alert)
			}
		}
	}
	eventually.Soon(t, "Prometheus scrapes the process", func() error {
		var found struct{ Result []any }
		if err := query(t.Context(), e.Prometheus+"/api/v1/query", url.Values{"query": {`up{job="update-graph"} == 1`}}, &found); err != nil {
			return err
		}
		if len(found.Result) != 1 {
			return errors.New("it is not up")
		}
		return nil
	})

	eventually.Soon(t, "Alertmanager has the alert that always fires", func() error {
		var alerts []struct{ Labels map[string]string }
		if err := get(t.Context(), e.Alertmanager+"/api/v2/alerts", &alerts); err != nil {
			return err
		}
		for _, each := range alerts {
			if each.Labels["alertname"] == "Watchdog" {
				return nil
			}
		}
		return fmt.Errorf("it has %v", alerts)
	})

	for _, board := range boards.All() {
		for _, row := range board.Rows {
			for _, panel := range row.Panels {
				for _, each := range panel.Queries {
					var found any
					if err := query(t.Context(), e.Prometheus+"/api/v1/query", url.Values{"query": {board.Plain(each.Expression)}}, &found); err != nil {
						t.Errorf("dashboard %s, panel %s: %v", board.Name, panel.Title, err)
					}
				}
			}
		}
	}
}

// query sends a query to the API of Prometheus and decodes its data.
func query(ctx context.Context, address string, values url.Values, into any) error {
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := get(ctx, address+"?"+values.Encode(), &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%v: %s", values, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// get reads a JSON document.
func get(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(into)
}
