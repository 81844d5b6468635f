package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func capacity() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "capacity", Title: "Capacity", Question: "Is there room for more clusters, requests and audit records?",
		Rows: []dashboard.Row{
			{Title: "Management clusters", Panels: []dashboard.Panel{
				bad(graph("Use of shards", "Share of the places of each shard that clusters occupy.", plot.Share,
					query(`max by (shard) (cluster_service_shard_clusters) / max by (shard) (cluster_service_shard_capacity)`, "{{shard}}")),
					dashboard.From(0.85), "docs/operators/shards.md#runbook-add-a-management-cluster"),
				graph("Free places", "Places for clusters on the shards that accept new ones.", plot.Count,
					query(`sum((max by (shard) (cluster_service_shard_capacity) - max by (shard) (cluster_service_shard_clusters)) and on (shard) max by (shard) (cluster_service_shard_state{state="Active"}) == 1)`, "free")),
				graph("Clusters of shards", "Clusters on each shard, with those in creation and deletion.", plot.Count,
					query(`max by (shard) (cluster_service_shard_clusters)`, "{{shard}}")),
			}},
			{Title: "Requests", Panels: []dashboard.Panel{
				graph("Seats", "Requests that the frontend handles, and those that wait for a seat.", plot.Count,
					query(`sum(frontend_requests_executing)`, "executing"), query(`sum(frontend_requests_waiting)`, "waiting")),
				bad(graph("Refused requests", "Requests that were refused because there were too many, by cause.", plot.PerSecond,
					query(`sum by (reason) (rate(frontend_requests_refused_total[$__rate_interval]))`, "{{reason}}")),
					dashboard.From(1), "docs/operators/throttling.md"),
				graph("Waiting for a seat", "99th percentile of the time that requests wait.", plot.Seconds,
					query(`histogram_quantile(0.99, sum by (le) (rate(frontend_request_wait_seconds_bucket[$__rate_interval])))`, "wait")),
				graph("Dispatch queue", "Committed changes that wait for the fast path to Cluster Service.", plot.Count,
					query(`sum(frontend_dispatch_queue_length)`, "waiting")),
			}},
			{Title: "Audit", Panels: []dashboard.Panel{
				bad(graph("Use of audit queues", "Share of the limit of the queue on the disk that is used, by program. A full queue rejects requests.", plot.Share,
					query(`max by (job) (audit_queue_bytes / audit_queue_limit_bytes)`, "{{job}}")),
					dashboard.From(0.8), "docs/operators/audit.md"),
				graph("Records", "Audit records that were stored durably.", plot.PerSecond,
					query(`sum by (job) (rate(audit_records_total[$__rate_interval]))`, "{{job}}")),
			}},
		},
	}
}
