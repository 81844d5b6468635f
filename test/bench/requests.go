package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// minRequests is the number of requests per cluster below which reportRequests does not print a kind: requests that do not depend on clusters.
const minRequests = 0.5

// managementRequests returns how many requests the API servers of the management clusters have answered, by verb, resource and subresource. Probes and
// watches are not counted.
func managementRequests(ctx context.Context, endpoints local.Endpoints) (map[string]float64, error) {
	counts := map[string]float64{}
	for name, path := range endpoints.Kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of %s: %w", name, err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of %s: %w", name, err)
		}
		for _, metric := range families["apiserver_request_total"].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["resource"] != "" && labels["verb"] != "WATCH" {
				what := strings.TrimRight(labels["verb"]+" "+labels["resource"]+"/"+labels["subresource"], "/")
				counts[what] += metric.GetCounter().GetValue()
			}
		}
	}
	return counts, nil
}

// reportRequests prints the requests per cluster between two measurements: all, and each kind. what is what happened to the clusters.
func reportRequests(report *report, what string, before, after map[string]float64, clusters int) {
	total := 0.0
	for kind := range after {
		total += after[kind] - before[kind]
	}
	report.line("  requests to management clusters per cluster "+what, fmt.Sprintf("%.1f", total/float64(clusters)), "")
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		if each := (after[kind] - before[kind]) / float64(clusters); each >= minRequests {
			report.line("    "+kind+", "+what, fmt.Sprintf("%.1f", each), "")
		}
	}
}
