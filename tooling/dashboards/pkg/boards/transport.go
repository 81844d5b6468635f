package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func transport() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "transport", Title: "Transport", Question: "Do changes and reports pass between Cluster Service, Maestro and the agents?",
		Rows: []dashboard.Row{
			{Title: "To the agents", Panels: []dashboard.Panel{
				graph("Published works", "Works that Cluster Service published to Maestro, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(cluster_service_maestro_publishes_total[$__rate_interval]))`, "{{outcome}}")),
				graph("Deliveries", "Events sent to agents, those sent again for lack of a confirmation, and failed attempts.", plot.PerSecond,
					query(`sum by (action) (rate(maestro_deliveries_sent_total[$__rate_interval]))`, "{{action}}"),
					query(`sum(rate(maestro_deliveries_resent_total[$__rate_interval]))`, "sent again"),
					query(`sum(rate(maestro_delivery_failures_total[$__rate_interval]))`, "failed")),
				bad(graph("Oldest unconfirmed change", "Age of the oldest change that an agent has not confirmed, by management cluster.", plot.Seconds,
					query(`max by (consumer) (maestro_outbox_oldest_seconds{lane="new"})`, "{{consumer}}")),
					dashboard.From(30), "docs/operators/objectives.md#changes-do-not-reach-a-management-cluster"),
				graph("Resyncs", "Comparisons of all works that agents requested within an hour.", plot.Count,
					query(`sum(increase(maestro_spec_resyncs_total[1h]))`, "resyncs")),
			}},
			{Title: "From the agents", Panels: []dashboard.Panel{
				graph("Statuses at Maestro", "Statuses received from agents, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(maestro_statuses_total[$__rate_interval]))`, "{{outcome}}")),
				graph("Statuses at Cluster Service", "Statuses received from Maestro, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(cluster_service_maestro_statuses_total[$__rate_interval]))`, "{{outcome}}")),
				graph("Statuses not stored", "Works whose newest status is not stored yet.", plot.Count,
					query(`sum(cluster_service_maestro_statuses_pending)`, "pending")),
				graph("Rejected messages", "Invalid messages, reports about unknown works, and subscribers that did not keep up, within an hour.", plot.Count,
					query(`sum(increase(maestro_invalid_messages_total[1h]))`, "invalid"),
					query(`sum(increase(maestro_unknown_works_total[1h]))`, "unknown work"),
					query(`sum(increase(maestro_subscribers_cut_off_total[1h]))`, "cut off")),
			}},
			{Title: "gRPC", Panels: []dashboard.Panel{
				graph("Calls", "Completed calls by service and status code.", plot.PerSecond,
					query(`sum by (grpc_service, grpc_code) (rate(grpc_server_handled_total[$__rate_interval]))`, "{{grpc_service}} {{grpc_code}}")),
				graph("Duration of calls", "99th percentile of the duration of unary calls, by method.", plot.Seconds,
					query(`histogram_quantile(0.99, sum by (le, grpc_method) (rate(grpc_server_handling_seconds_bucket[$__rate_interval])))`, "{{grpc_method}}")),
				graph("Served consumers", "Management clusters that each replica of Maestro serves, and its subscribers.", plot.Count,
					query(`max by (instance) (maestro_consumers_served)`, "{{instance}}"),
					query(`max by (instance) (maestro_subscribers)`, "{{instance}} subscribers")),
			}},
		},
	}
}
