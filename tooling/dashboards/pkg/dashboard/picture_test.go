package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// shards is a Source with a series for each shard. Tests in test/drills have a real Prometheus.
type shards struct {
	names []string
	err   error

	mu      sync.Mutex
	queries []string
}

func (s *shards) note(query string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, query)
}

func (s *shards) Query(_ context.Context, query string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	s.note(query + " at " + at.Format(time.TimeOnly))
	var vector model.Vector
	for i, name := range s.names {
		vector = append(vector, &model.Sample{Metric: model.Metric{"shard": model.LabelValue(name)}, Timestamp: model.TimeFromUnix(at.Unix()), Value: model.SampleValue(i)})
	}
	return append(vector, &model.Sample{Metric: model.Metric{"shard": "empty"}, Value: model.SampleValue(math.NaN())}), nil, s.err
}

func (s *shards) QueryRange(_ context.Context, query string, p promv1.Range, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	s.note(fmt.Sprintf("%s every %v", query, p.Step))
	var matrix model.Matrix
	for i, name := range s.names {
		matrix = append(matrix, &model.SampleStream{Metric: model.Metric{"shard": model.LabelValue(name)}, Values: []model.SamplePair{{Timestamp: model.TimeFromUnix(p.Start.Unix()), Value: model.SampleValue(i)}}})
	}
	return matrix, nil, s.err
}

func (s *shards) LabelValues(context.Context, string, []string, time.Time, time.Time, ...promv1.Option) (model.LabelValues, promv1.Warnings, error) {
	var values model.LabelValues
	for _, name := range s.names {
		values = append(values, model.LabelValue(name))
	}
	return values, nil, s.err
}

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func board() *Dashboard {
	query := []Query{{Expression: `rate(used{shard=~"$shard"}[$__rate_interval])`, Legend: "{{shard}}"}}
	return &Dashboard{Name: "shards", Title: "Shards", Question: "Is there room?", Variables: []Variable{{Name: "shard", Metric: "used", Label: "shard"}}, Rows: []Row{{Title: "All", Panels: []Panel{
		{Title: "Over time", Meaning: "Used places.", Kind: Graph, Unit: plot.Count, Queries: query, Limit: From(1)},
		{Title: "Now", Meaning: "Used places.", Kind: Number, Unit: plot.Count, Queries: query},
	}}}}
}

func TestPage(t *testing.T) {
	source := &shards{names: []string{"mgmt-1", "mgmt-2"}}
	page := must.Get(Fill(t.Context(), source, board(), Selection{From: noon.Add(-6 * time.Hour), To: noon, Variables: map[string][]string{"shard": {"mgmt-1", "mgmt-2"}}}))(t)
	slices.Sort(source.queries)
	want := []string{`rate(used{shard=~"mgmt-1|mgmt-2"}[1m45s]) at 12:00:00`, `rate(used{shard=~"mgmt-1|mgmt-2"}[1m45s]) every 1m30s`}
	if diff := cmp.Diff(want, source.queries); diff != "" {
		t.Errorf("the queries: -want +got:\n%s", diff)
	}
	graph, ok := page.Sections[0].Drawings[0].(*plot.Chart)
	if !ok {
		t.Fatalf("the first drawing is a %T", page.Sections[0].Drawings[0])
	}
	if graph.Step != 90*time.Second || !graph.Limit.Bad(1) || len(graph.Series) != 2 || graph.Series[1].Name != "mgmt-2" || len(graph.Series[1].Points) != 1 {
		t.Errorf("the graph is %+v", graph)
	}
	numbers, ok := page.Sections[0].Drawings[1].(*plot.Numbers)
	if !ok {
		t.Fatalf("the second drawing is a %T", page.Sections[0].Drawings[1])
	}
	if diff := cmp.Diff([]plot.Value{{Name: "mgmt-1", Value: 0}, {Name: "mgmt-2", Value: 1}}, numbers.Values); diff != "" {
		t.Errorf("the values: -want +got:\n%s", diff)
	}
	if !strings.Contains(page.Question, "shard mgmt-1, mgmt-2") {
		t.Errorf("the page does not name the selection: %q", page.Question)
	}
}

func TestPageRefusesSelections(t *testing.T) {
	for field, s := range map[string]Selection{
		"from":  {From: noon, To: noon},
		"zone":  {From: noon.Add(-time.Hour), To: noon, Variables: map[string][]string{"zone": {"1"}}},
		"shard": {From: noon.Add(-time.Hour), To: noon, Variables: map[string][]string{"shard": {"mgmt-9"}}},
	} {
		var problem *Problem
		if _, err := Fill(t.Context(), &shards{names: []string{"mgmt-1"}}, board(), s); !errors.As(err, &problem) || problem.Field != field {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
}

// TestPageFailsWithItsPanels checks that a page does not lack a panel silently.
func TestPageFailsWithItsPanels(t *testing.T) {
	s := Selection{From: noon.Add(-time.Hour), To: noon}
	away := errors.New("connection refused")
	if _, err := Fill(t.Context(), &shards{err: away}, board(), s); !errors.Is(err, away) || !strings.Contains(err.Error(), "panel ") {
		t.Errorf("the error is %v", err)
	}
	if _, err := Fill(t.Context(), &shards{names: make([]string, maxSeries+1)}, board(), s); !errors.Is(err, errTooMany) {
		t.Errorf("the error is %v", err)
	}
}
