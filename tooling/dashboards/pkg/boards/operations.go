package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func operations() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "operations", Title: "Operations", Question: "Do accepted operations end, how long do they take, and by whose fault do they fail?",
		Variables: []dashboard.Variable{{Name: "request", Metric: "backend_operations_in_flight", Label: "request"}},
		Rows: []dashboard.Row{
			{Title: "Outcome", Panels: []dashboard.Panel{
				graph("Ended operations", "Operations that ended within an hour, by status.", plot.Count,
					query(`sum by (request, status) (increase(backend_operations_ended_total{request=~"$request"}[1h]))`, "{{request}} {{status}}")),
				bad(graph("Failed operations", "Operations that failed within an hour, by kind of resource and fault.", plot.Count,
					query(`sum by (kind, fault) (increase(backend_operations_ended_total{request=~"$request",status="Failed"}[1h]))`, "{{kind}}: {{fault}}")),
					dashboard.From(1), "docs/operators/objectives.md#operations-fail"),
			}},
			{Title: "Duration", Panels: []dashboard.Panel{
				bad(graph("Duration", "Median and 95th percentile of the time from the acceptance to the end of operations that ended within an hour.", plot.Seconds,
					query(`histogram_quantile(0.5, sum by (le, request) (increase(backend_operation_duration_seconds_bucket{request=~"$request"}[1h])))`, "{{request}} p50"),
					query(`histogram_quantile(0.95, sum by (le, request) (increase(backend_operation_duration_seconds_bucket{request=~"$request"}[1h])))`, "{{request}} p95")),
					dashboard.From(1200), "docs/operators/objectives.md#operations-are-slow"),
				graph("Oldest operation", "Age of the oldest running operation.", plot.Seconds,
					query(`max by (kind, request) (backend_operations_oldest_seconds{request=~"$request"})`, "{{request}} {{kind}}")),
				graph("Running operations", "Operations that have not ended.", plot.Count,
					query(`sum by (kind, request) (backend_operations_in_flight{request=~"$request"})`, "{{request}} {{kind}}")),
			}},
			{Title: "Backend", Panels: []dashboard.Panel{
				graph("Waiting resources", "Resources that wait to be processed, and those with open events or operations.", plot.Count,
					query(`sum(backend_resources_queued)`, "queued"), query(`sum(backend_resources_in_progress)`, "in progress")),
				graph("Processing", "99th percentile of the duration of one processing of a resource, by outcome.", plot.Seconds,
					query(`histogram_quantile(0.99, sum by (le, outcome) (rate(backend_reconcile_duration_seconds_bucket[$__rate_interval])))`, "{{outcome}}")),
				graph("Groups of replicas", "Groups of subscriptions that each replica owns.", plot.Count,
					query(`max by (instance) (backend_groups_owned)`, "{{instance}}")),
				graph("Repeated requests", "Requests to Cluster Service that the frontend had not sent in time, and those repeated because Cluster Service had lost state.", plot.PerSecond,
					query(`sum(rate(backend_cluster_service_requests_total[$__rate_interval]))`, "late"),
					query(`sum(rate(backend_reconciliation_sent_total[$__rate_interval]))`, "lost")),
				graph("Notifications", "Attempts to notify about ended operations, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(backend_notifications_total[$__rate_interval]))`, "{{outcome}}")),
			}},
		},
	}
}
