package keyrotation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

// labels select a series of a metric.
type labels map[string]string

// metrics are the metrics of a replica by name.
type metrics map[string]*dto.MetricFamily

// scrape reads the metrics of a replica.
func (o *Options) scrape(ctx context.Context, url string) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("--replica: %w", err)
	}
	response, err := o.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of a replica: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics of %s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(http.MaxBytesReader(nil, response.Body, maxMetrics))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", url, err)
	}
	return families, nil
}

// value returns the value of a series.
func (m metrics) value(name string, want labels) (float64, bool) {
	for _, series := range m[name].GetMetric() {
		if matches(series, want) {
			return series.GetGauge().GetValue(), true
		}
	}
	return 0, false
}

func matches(series *dto.Metric, want labels) bool {
	for name, value := range want {
		if label(series, name) != value {
			return false
		}
	}
	return true
}

func label(series *dto.Metric, name string) string {
	for _, pair := range series.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// ring returns the keys that a replica has read from the file of a flag.
func (r *Rotation) ring(ctx context.Context, url, flag string) (keyfile.Ring, error) {
	var ring keyfile.Ring
	found, err := r.scrape(ctx, url)
	if err != nil {
		return ring, err
	}
	for _, series := range found[keyfile.KeyMetric].GetMetric() {
		if label(series, keyfile.KeysetLabel) != flag {
			continue
		}
		id, err := strconv.ParseUint(label(series, keyfile.KeyLabel), 10, 32)
		if err != nil {
			return ring, fmt.Errorf("%s exports an invalid ID of a key: %w", url, err)
		}
		ring.IDs = append(ring.IDs, uint32(id))
		if series.GetGauge().GetValue() == 1 {
			ring.Primary = uint32(id)
		}
	}
	if len(ring.IDs) == 0 {
		return ring, fmt.Errorf("%s exports no keys of --%s: it does not have the flag, or it is of a release without the metric %s", url, flag, keyfile.KeyMetric)
	}
	slices.Sort(ring.IDs)
	return ring, nil
}
