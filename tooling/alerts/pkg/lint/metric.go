package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// Metric is a metric that programs export or a rule records.
type Metric struct {
	// Kind is counter, gauge or histogram.
	Kind   string
	Labels []string
}

// Metrics are metrics by name.
type Metrics map[string]Metric

// The rows of docs/metrics.md, and the labels in their third column.
var (
	metricRow   = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\| [0-9]+ \\| ")
	metricLabel = regexp.MustCompile("`([a-z_]+)` \\([0-9]+\\)")
)

// ParseMetrics returns the metrics of the page docs/metrics.md, and those that Prometheus itself creates.
func ParseMetrics(page string) (Metrics, error) {
	metrics := Metrics{"up": {Kind: "gauge"}}
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		m := Metric{Kind: row[2]}
		for _, label := range metricLabel.FindAllStringSubmatch(row[3], -1) {
			m.Labels = append(m.Labels, label[1])
		}
		metrics[row[1]] = m
	}
	if len(metrics) == 1 {
		return nil, fmt.Errorf("the page has no table of metrics")
	}
	return metrics, nil
}

// labelsOf returns the labels of the series with a name. Prometheus adds job and instance to each. A histogram has the series _bucket, _sum
// and _count.
func (m Metrics) labelsOf(name string) (labels, error) {
	if found, ok := m[name]; ok {
		if found.Kind == "histogram" {
			return nil, fmt.Errorf("%s is a histogram: use %s_bucket, %s_sum or %s_count", name, name, name, name)
		}
		if found.Kind == recorded {
			return newLabels(found.Labels...), nil
		}
		return newLabels(append([]string{"job", "instance"}, found.Labels...)...), nil
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		histogram, ok := strings.CutSuffix(name, suffix)
		if found := m[histogram]; ok && found.Kind == "histogram" {
			all := newLabels(append([]string{"job", "instance"}, found.Labels...)...)
			if suffix == "_bucket" {
				all["le"] = true
			}
			return all, nil
		}
	}
	return nil, fmt.Errorf("no program exports the metric %s, and no rule records it", name)
}

// recorded is the kind of the metrics of recording rules.
const recorded = "recorded"
