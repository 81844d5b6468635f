package e2e

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// The rows of docs/metrics.md, and the labels in their third column.
var (
	metricRow   = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| [0-9]+ \\| ")
	metricLabel = regexp.MustCompile("`([a-z_]+)` \\(([0-9]+)\\)")
)

// documentedMetric is a row of docs/metrics.md.
type documentedMetric struct {
	kind string
	// labels has the most values of each label.
	labels map[string]int
}

// TestMetricsAreDocumented compares what all processes of the region export with docs/metrics.md: names, types, labels, and the
// number of values of each label.
func TestMetricsAreDocumented(t *testing.T) {
	needsRegion(t)
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md")))(t)
	documented := map[string]documentedMetric{}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		m := documentedMetric{row[2], map[string]int{}}
		for _, label := range metricLabel.FindAllStringSubmatch(row[3], -1) {
			m.labels[label[1]] = must.Get(strconv.Atoi(label[2]))(t)
		}
		documented[row[1]] = m
	}
	ctx := withTimeout(t, 2*time.Minute)
	eventually.Soon(t, "Cluster Service exports the provision shards", func() error {
		if scrape(t, ctx, region.Endpoints().Ops["cluster-service"])["cluster_service_shard_capacity"] == nil {
			return errors.New("it exports no capacity")
		}
		return nil
	})

	exported := map[string]bool{}
	for process, address := range region.Endpoints().Ops {
		families := scrape(t, ctx, address)
		if len(families) == 0 {
			continue // another test has stopped the process
		}
		for name, family := range families {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
				continue // metrics of client_golang
			}
			exported[name] = true
			m, ok := documented[name]
			if !ok {
				t.Errorf("%s exports %s, which docs/metrics.md does not list", process, name)
				continue
			}
			m.compare(t, process, family)
		}
	}
	for _, name := range []string{"backend_operations_in_flight", "backend_operations_ended_total", "frontend_health", "grpc_server_handled_total"} {
		if !exported[name] {
			t.Errorf("no process exports %s", name)
		}
	}
}

// compare compares an exported metric with its row.
func (m documentedMetric) compare(t *testing.T, process string, family *dto.MetricFamily) {
	t.Helper()
	if kind := strings.ToLower(family.GetType().String()); kind != m.kind {
		t.Errorf("%s exports %s as %s, docs/metrics.md lists %s", process, family.GetName(), kind, m.kind)
	}
	values := map[string]map[string]bool{}
	for _, series := range family.GetMetric() {
		names := map[string]bool{}
		for _, label := range series.GetLabel() {
			names[label.GetName()] = true
			if values[label.GetName()] == nil {
				values[label.GetName()] = map[string]bool{}
			}
			values[label.GetName()][label.GetValue()] = true
		}
		if !maps.EqualFunc(names, m.labels, func(bool, int) bool { return true }) {
			t.Errorf("%s exports %s with the labels %v, docs/metrics.md lists %v", process, family.GetName(), slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(m.labels)))
			return
		}
	}
	for label, limit := range m.labels {
		if n := len(values[label]); n > limit {
			t.Errorf("%s exports %s with %d values of %s, the bound is %d: %v", process, family.GetName(), n, label, limit, slices.Sorted(maps.Keys(values[label])))
		}
	}
}

// scrape returns the metrics of a process, or none if it does not run.
func scrape(t *testing.T, ctx context.Context, address string) map[string]*dto.MetricFamily {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody))(t)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatalf("the metrics of %s: %v", address, err)
	}
	return families
}
