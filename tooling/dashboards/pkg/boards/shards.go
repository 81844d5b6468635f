package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func shards() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "shard-triage", Title: "Shard triage", Question: "Does a management cluster receive changes, and does it report?",
		Variables: []dashboard.Variable{{Name: "shard", Metric: "cluster_service_shard_capacity", Label: "shard"}},
		Rows: []dashboard.Row{
			{Title: "Agent", Panels: []dashboard.Panel{
				bad(graph("Last heartbeat", "Time since the last heartbeat of the agent.", plot.Seconds,
					query(`time() - max by (shard) (cluster_service_agent_last_heartbeat_seconds{shard=~"$shard"})`, "{{shard}}")),
					dashboard.From(300), "docs/operators/shards.md#runbook-an-agent-does-not-respond"),
				bad(graph("Components", "1 for each component of the management cluster that answered that it is ready.", plot.YesOrNo,
					query(`max by (component, shard) (admin_component_up{shard=~"$shard",shard!=""})`, "{{shard}} {{component}}")),
					dashboard.Below(1), "docs/operators/component-away.md"),
			}},
			{Title: "Changes", Panels: []dashboard.Panel{
				bad(graph("Oldest unconfirmed change", "Age of the oldest change that the agent has not confirmed.", plot.Seconds,
					query(`max by (consumer, lane) (maestro_outbox_oldest_seconds{consumer=~"$shard"})`, "{{consumer}} {{lane}}")),
					dashboard.From(30), "docs/operators/objectives.md#changes-do-not-reach-a-management-cluster"),
				graph("Unconfirmed changes", "Changes that the agent has not confirmed, by lane.", plot.Count,
					query(`max by (consumer, lane) (maestro_outbox_waiting{consumer=~"$shard"})`, "{{consumer}} {{lane}}")),
				bad(graph("Parked changes", "Changes that cannot be sent.", plot.Count,
					query(`max by (consumer) (maestro_outbox_parked{consumer=~"$shard"})`, "{{consumer}}")),
					dashboard.From(1), "docs/operators/objectives.md#changes-do-not-reach-a-management-cluster"),
				bad(graph("Removed objects", "Objects that another client removed within an hour, by kind.", plot.Count,
					query(`sum by (shard, kind) (increase(cluster_service_objects_removed_total{shard=~"$shard"}[1h]))`, "{{shard}} {{kind}}")),
					dashboard.From(1), "docs/operators/removed-objects.md"),
			}},
			{Title: "Clusters", Panels: []dashboard.Panel{
				graph("Clusters", "Clusters on the shard, with those in creation and deletion, and the most that it accepts.", plot.Count,
					query(`max by (shard) (cluster_service_shard_clusters{shard=~"$shard"})`, "{{shard}}"),
					query(`max by (shard) (cluster_service_shard_capacity{shard=~"$shard"})`, "{{shard}} at most")),
				number("State", "The state of the shard for new clusters.", plot.YesOrNo,
					query(`max by (shard, state) (cluster_service_shard_state{shard=~"$shard"}) == 1`, "{{shard}} {{state}}")),
			}},
		},
	}
}
