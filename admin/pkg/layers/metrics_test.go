package layers

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// TestMetricsSeparateOutagesFromDependents checks the metrics of an outage of PostgreSQL, which Cluster Service needs, and of its end.
func TestMetricsSeparateOutagesFromDependents(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	service := adminv1.Component{Name: "cluster-service", Layer: adminv1.ComponentClusterService, State: adminv1.ComponentReady}
	postgres := adminv1.Component{Name: "postgresql", Layer: adminv1.ComponentPostgreSQL, State: adminv1.ComponentNotReady, ReportedBy: service.Name}
	agent := adminv1.Component{Name: "mgmt-1-maestro-agent", Layer: adminv1.ComponentAgent, ProvisionShard: "mgmt-1", State: adminv1.ComponentReady}
	expect := func(components []adminv1.Component, want string) {
		t.Helper()
		m.export(components, time.UnixMilli(1_500))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "admin_component_up", "admin_layer_outage", "admin_components_last_check_seconds"); err != nil {
			t.Error(err)
		}
	}
	away := service
	away.State = adminv1.ComponentNotReady
	expect([]adminv1.Component{away, agent, postgres}, `
# HELP admin_component_up 1 if the component answered that it is ready when this replica asked last, else 0. The label shard is empty for components of the region.
# TYPE admin_component_up gauge
admin_component_up{component="cluster-service",layer="cluster-service",shard=""} 0
admin_component_up{component="mgmt-1-maestro-agent",layer="maestro-agent",shard="mgmt-1"} 1
admin_component_up{component="postgresql",layer="postgresql",shard=""} 0
# HELP admin_components_last_check_seconds Time at which this replica last asked all components whether they are ready, as Unix time.
# TYPE admin_components_last_check_seconds gauge
admin_components_last_check_seconds 1.5
# HELP admin_layer_outage 1 if a component of the layer, of the region or of one management cluster (shard), is away although all layers that it needs are ready, else 0.
# TYPE admin_layer_outage gauge
admin_layer_outage{layer="cluster-service",shard=""} 0
admin_layer_outage{layer="maestro-agent",shard="mgmt-1"} 0
admin_layer_outage{layer="postgresql",shard=""} 1
`)
	// Admin does not ask PostgreSQL itself here: without a report nothing is known of it.
	expect([]adminv1.Component{service, agent}, `
# HELP admin_component_up 1 if the component answered that it is ready when this replica asked last, else 0. The label shard is empty for components of the region.
# TYPE admin_component_up gauge
admin_component_up{component="cluster-service",layer="cluster-service",shard=""} 1
admin_component_up{component="mgmt-1-maestro-agent",layer="maestro-agent",shard="mgmt-1"} 1
# HELP admin_components_last_check_seconds Time at which this replica last asked all components whether they are ready, as Unix time.
# TYPE admin_components_last_check_seconds gauge
admin_components_last_check_seconds 1.5
# HELP admin_layer_outage 1 if a component of the layer, of the region or of one management cluster (shard), is away although all layers that it needs are ready, else 0.
# TYPE admin_layer_outage gauge
admin_layer_outage{layer="cluster-service",shard=""} 0
admin_layer_outage{layer="maestro-agent",shard="mgmt-1"} 0
`)
}
