package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func hosted() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "hosted-apis", Title: "Hosted APIs", Question: "Which clusters cannot be used, since when, and does monitor see them all?",
		Variables: []dashboard.Variable{{Name: "cluster", Metric: "monitor_cluster_info", Label: "resource_id"}},
		Rows: []dashboard.Row{
			{Title: "Region", Panels: []dashboard.Panel{
				bad(graph("Unavailable clusters", "Clusters whose API does not answer, by provision shard.", plot.Count,
					query(`sum by (shard) ((1 - monitor_cluster_api_up) * on (cluster_uid) group_left (shard) max by (cluster_uid, shard) (monitor_cluster_info))`, "{{shard}}")),
					dashboard.From(1), "docs/operators/hosted-api.md#the-api-of-a-cluster-is-away"),
				graph("Concerns", "Clusters with a concern, by concern and whose fault it is.", plot.Count,
					query(`count by (concern, fault) (monitor_cluster_concern)`, "{{concern}}: {{fault}}")),
				bad(graph("Unreachable shards", "Time for which most clusters of a provision shard have not answered.", plot.Seconds,
					query(`time() - max by (shard) (monitor_shard_unreachable) or 0 * sum by (shard) (monitor_clusters_expected)`, "{{shard}}")),
					dashboard.From(60), "docs/operators/hosted-api.md#the-apis-of-a-management-cluster-are-away"),
			}},
			{Title: "Cluster", Panels: []dashboard.Panel{
				graph("Availability", "1 while the API of the cluster is available; absent while that is unknown.", plot.YesOrNo,
					query(`max by (resource_id) (monitor_cluster_api_up * on (cluster_uid) group_left (resource_id) max by (cluster_uid, resource_id) (monitor_cluster_info{resource_id=~"$cluster"}))`, "{{resource_id}}")),
				graph("Failed probes", "Share of the probes, or of the reported states of closed APIs, within an hour that failed and count for the objective.", plot.Share,
					query(`sum by (resource_id) (increase(monitor_cluster_probe_failures_total[1h]) * on (cluster_uid) group_left (resource_id) max by (cluster_uid, resource_id) (monitor_cluster_info{resource_id=~"$cluster"})) / sum by (resource_id) (increase(monitor_cluster_probes_total[1h]) * on (cluster_uid) group_left (resource_id) max by (cluster_uid, resource_id) (monitor_cluster_info{resource_id=~"$cluster"}))`, "{{resource_id}}")),
				graph("Concerns of the cluster", "Time for which the cluster has had each concern.", plot.Seconds,
					query(`max by (resource_id, concern) ((time() - monitor_cluster_concern) * on (cluster_uid) group_left (resource_id) max by (cluster_uid, resource_id) (monitor_cluster_info{resource_id=~"$cluster"}))`, "{{concern}} {{resource_id}}")),
				graph("End of the certificate", "Time until the serving certificate of the cluster ends.", plot.Seconds,
					query(`min by (resource_id) ((monitor_cluster_certificate_end_seconds - time()) * on (cluster_uid) group_left (resource_id) max by (cluster_uid, resource_id) (monitor_cluster_info{resource_id=~"$cluster"}))`, "{{resource_id}}")),
			}},
			{Title: "Monitor", Panels: []dashboard.Panel{
				bad(graph("Blindness", "1 while monitor cannot see the clusters. It makes no statement about them then.", plot.YesOrNo,
					query(`max by (instance) (monitor_blind)`, "{{instance}}")),
					dashboard.From(1), "docs/operators/hosted-api.md#nobody-probes-the-clusters"),
				bad(graph("Clusters without probes", "Ready clusters without a probe in the last 90 s, and without a report of the prober of their management cluster.", plot.Count,
					query(`sum by (shard) (monitor_clusters_expected) - sum by (shard) (monitor_clusters_probed)`, "{{shard}}")),
					dashboard.From(1), "docs/operators/hosted-api.md#nobody-probes-the-clusters"),
				bad(graph("Groups without a replica", "Groups of clusters that no replica owns.", plot.Count,
					query(`max(monitor_groups) - sum(monitor_groups_owned)`, "groups")),
					dashboard.From(1), "docs/operators/hosted-api.md#nobody-probes-the-clusters"),
				graph("Probes", "Probes of API servers, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(monitor_probes_total[$__rate_interval]))`, "{{outcome}}")),
				graph("Duration of probes", "Median and 99th percentile of the duration of successful probes.", plot.Seconds,
					query(`histogram_quantile(0.5, sum by (le) (rate(monitor_probe_duration_seconds_bucket[$__rate_interval])))`, "p50"),
					query(`histogram_quantile(0.99, sum by (le) (rate(monitor_probe_duration_seconds_bucket[$__rate_interval])))`, "p99")),
			}},
		},
	}
}
