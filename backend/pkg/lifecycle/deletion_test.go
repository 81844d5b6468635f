package lifecycle

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/backend/pkg/inbox"
)

func TestStuckStepsAreCountedOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, one := range []struct {
		resource, step string
		news           bool
	}{{"a", "", false}, {"a", "fleet-asked", true}, {"a", "fleet-asked", false}, {"b", "fleet-asked", true}, {"a", "fleet-gone", true}, {"b", "", true}, {"b", "", false}} {
		if news := m.stuckIn(inbox.Resource("/subscriptions/s/"+one.resource), one.step); news != one.news {
			t.Errorf("%s in %q: news %v, want %v", one.resource, one.step, news, one.news)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "backend_deletion_step_stuck" {
			continue
		}
		for _, metric := range family.GetMetric() {
			got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	if got["fleet-asked"] != 0 || got["fleet-gone"] != 1 || len(got) != 4 {
		t.Errorf("counted: %v", got)
	}
}
