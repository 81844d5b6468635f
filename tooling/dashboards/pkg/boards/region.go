package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func region() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "region", Title: "Region overview", Question: "Are customers served, and if not, which part of the region fails?",
		Rows: []dashboard.Row{
			{Title: "Customers", Panels: []dashboard.Panel{
				graph("Requests", "Requests to ARM that the frontend has completed, by status.", plot.PerSecond,
					query(`sum by (code) (rate(frontend_http_requests_total[$__rate_interval]))`, "{{code}}")),
				bad(graph("Failed requests", "Share of requests with a status of 5xx.", plot.Share,
					query(`(sum(rate(frontend_http_requests_total{code=~"5.."}[$__rate_interval])) or vector(0)) / sum(rate(frontend_http_requests_total[$__rate_interval]))`, "5xx")),
					dashboard.From(0.01), "docs/operators/objectives.md#requests-fail-or-are-slow"),
				bad(graph("Duration of requests", "99th percentile of reads and of changes.", plot.Seconds,
					query(`histogram_quantile(0.99, sum by (le) (rate(frontend_http_requests_duration_seconds_bucket{method="GET"}[$__rate_interval])))`, "reads"),
					query(`histogram_quantile(0.99, sum by (le) (rate(frontend_http_requests_duration_seconds_bucket{method=~"PUT|PATCH|POST|DELETE"}[$__rate_interval])))`, "changes")),
					dashboard.From(1), "docs/operators/objectives.md#requests-fail-or-are-slow"),
				graph("Running operations", "Operations that were accepted and have not ended, by request.", plot.Count,
					query(`sum by (request) (backend_operations_in_flight)`, "{{request}}")),
				bad(graph("Failures of the service", "Operations that failed within an hour by a fault of the service.", plot.Count,
					query(`sum by (kind, request) (increase(backend_operations_ended_total{fault="service"}[1h]))`, "{{request}} {{kind}}")),
					dashboard.From(1), "docs/operators/objectives.md#operations-fail"),
				graph("Oldest operation", "Age of the oldest running operation, by request.", plot.Seconds,
					query(`max by (request) (backend_operations_oldest_seconds)`, "{{request}}")),
			}},
			{Title: "Clusters", Panels: []dashboard.Panel{
				graph("Clusters", "Clusters by their provisioning state.", plot.Count,
					query(`sum by (provisioning_state) (backend_resources{kind="cluster"})`, "{{provisioning_state}}")),
				bad(number("Lost control planes", "Installed clusters whose control plane was removed. An engineer must decide how each continues.", plot.Count,
					query(`max(cluster_service_control_planes_lost)`, "lost")),
					dashboard.From(1), "docs/operators/removed-objects.md"),
				bad(graph("Stuck deletions", "Steps of deletions that exceed their limit.", plot.Count,
					query(`max by (step) (cluster_service_deletion_step_stuck)`, "{{step}}"),
					query(`sum by (step) (backend_deletion_step_stuck)`, "{{step}}")),
					dashboard.From(1), "docs/operators/stuck-deletion/README.md"),
			}},
			{Title: "Services", Panels: []dashboard.Panel{
				bad(graph("Outages", "1 while a component of a layer is away although all layers that it needs are ready.", plot.YesOrNo,
					query(`max by (layer, shard) (admin_layer_outage)`, "{{layer}} {{shard}}")),
					dashboard.From(1), "docs/operators/component-away.md"),
				bad(graph("Components that are not ready", "Number of components that did not answer that they are ready, by layer.", plot.Count,
					query(`sum by (layer) (1 - max by (component, layer, shard) (admin_component_up))`, "{{layer}}")),
					dashboard.From(1), "docs/operators/component-away.md"),
				bad(graph("First end of a certificate", "Time until the first certificate of a program ends.", plot.Seconds,
					query(`min by (job) (workload_certificate_end_seconds) - time()`, "{{job}}")),
					dashboard.Below(4*3600), "docs/operators/rotation.md"),
				bad(graph("Age of the links of the egress gateway", "Time since each replica last read its links. At 300 s it is not ready, at 600 s it closes all connections.", plot.Seconds,
					query(`max by (instance) (gateway_egress_links_age_seconds)`, "{{instance}}")),
					dashboard.From(300), "docs/operators/egress-gateway.md#runbook-no-cluster-reaches-a-host"),
				graph("Connections to the egress gateway", "New connections by outcome: permitted, or why they were refused.", plot.PerSecond,
					query(`sum by (outcome) (rate(gateway_egress_connections_total[$__rate_interval]))`, "{{outcome}}")),
				graph("Calls between services", "Completed calls of gRPC servers that the server refused or failed.", plot.PerSecond,
					query(`sum by (job) (rate(grpc_server_handled_total{grpc_code!="OK"}[$__rate_interval])) or 0 * sum by (job) (rate(grpc_server_handled_total[$__rate_interval]))`, "{{job}}")),
			}},
		},
	}
}
