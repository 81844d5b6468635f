package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

func access() *dashboard.Dashboard {
	return &dashboard.Dashboard{
		Name: "access", Title: "Access and audit", Question: "Who acts on clusters with special rights, and is everything recorded?",
		Rows: []dashboard.Row{
			{Title: "Engineers", Panels: []dashboard.Panel{
				graph("Requests to admin", "Requests of engineers, by status.", plot.PerSecond,
					query(`sum by (status) (rate(admin_requests_total[$__rate_interval]))`, "{{status}}")),
				graph("Admin operations", "Operations of engineers that ended within an hour, by action and state.", plot.Count,
					query(`sum by (action, state) (increase(backend_admin_operations_total[1h]))`, "{{action}} {{state}}")),
				graph("Refused operations", "Operations within an hour that no valid intent of an engineer authorized.", plot.Count,
					query(`sum by (reason) (increase(backend_admin_operations_refused_total[1h]))`, "{{reason}}")),
				bad(number("Emergencies without a review", "Emergency elevations that no second person has reviewed.", plot.Count,
					query(`max(admin_emergency_elevations_unreviewed)`, "unreviewed")),
					dashboard.From(1), "docs/operators/access.md"),
				graph("Tickets", "Questions to the ticket validator, by outcome.", plot.PerSecond,
					query(`sum by (outcome) (rate(admin_ticket_validations_total[$__rate_interval]))`, "{{outcome}}")),
			}},
			{Title: "Break-glass credentials", Panels: []dashboard.Panel{
				bad(graph("Uses of unknown certificates", "Uses of break-glass certificates within an hour that no credential explains.", plot.Count,
					query(`sum by (class, outcome) (increase(cluster_service_break_glass_uses_total{outcome!="known"}[1h]))`, "{{class}} {{outcome}}")),
					dashboard.From(1), "docs/operators/break-glass.md#runbook-unexplained-use-of-a-certificate"),
				graph("Uses", "Reported uses of break-glass certificates within an hour.", plot.Count,
					query(`sum by (class) (increase(cluster_service_break_glass_uses_total[1h]))`, "{{class}}")),
			}},
			{Title: "Audit", Panels: []dashboard.Panel{
				bad(graph("Failing exports", "1 while the export of audit records of a program fails.", plot.YesOrNo,
					query(`max by (job) (audit_export_failing)`, "{{job}}")),
					dashboard.From(1), "docs/operators/audit.md"),
				bad(graph("Conflicts", "1 while the sink does not have what a program exported.", plot.YesOrNo,
					query(`max by (job) (audit_sink_conflict)`, "{{job}}")),
					dashboard.From(1), "docs/operators/audit.md"),
				bad(graph("Rejected requests", "Requests within an hour that were rejected because their audit records could not be stored.", plot.Count,
					query(`sum by (job, cause) (increase(audit_rejections_total[1h]))`, "{{job}} {{cause}}")),
					dashboard.From(1), "docs/operators/audit.md"),
				graph("Audit events of management clusters", "Events of API servers that have a record, and places within an hour where events are missing.", plot.PerSecond,
					query(`sum(rate(management_audit_records_total[$__rate_interval]))`, "records"),
					query(`sum(rate(management_audit_gaps_total[$__rate_interval]))`, "gaps")),
			}},
			{Title: "Recordings of commands", Panels: []dashboard.Panel{
				bad(graph("Failing exports of recordings", "1 while a replica of the session gateway cannot export recordings.", plot.YesOrNo,
					query(`max by (instance) (gateway_access_recording_export_failing)`, "{{instance}}")),
					dashboard.From(1), "docs/operators/access-sessions.md#runbook-recordings-are-not-exported"),
				graph("Recordings on the disk", "Share of the limit of a replica that its recordings use. At 1 it refuses commands.", plot.Share,
					query(`max by (instance) (gateway_access_recording_bytes / gateway_access_recording_limit_bytes)`, "{{instance}}")),
				bad(graph("Commands that were not recorded", "Commands within an hour that were refused or ended because they could not be recorded.", plot.Count,
					query(`sum by (cause) (increase(gateway_access_recording_failures_total[1h]))`, "{{cause}}")),
					dashboard.From(1), "docs/operators/access-sessions.md#runbook-commands-cannot-be-recorded"),
			}},
			{Title: "Session gateway", Panels: []dashboard.Panel{
				bad(graph("Forged sessions", "Access sessions within an hour that ended because their document was forged.", plot.Count,
					query(`sum by (reason) (increase(gateway_access_sessions_forged_total[1h]))`, "{{reason}}")),
					dashboard.From(1), "docs/operators/access-sessions.md#runbook-an-access-session-is-forged"),
				bad(graph("Access that outlives its session", "Objects that give access and that an access session has left within an hour.", plot.Count,
					query(`sum by (instance) (increase(gateway_access_objects_total{outcome="left"}[1h]))`, "{{instance}}")),
					dashboard.From(1), "docs/operators/access-sessions.md#runbook-access-outlives-a-session"),
				bad(graph("Tunnels", "Tunnels of each management cluster to a replica of the session gateway.", plot.Count,
					query(`min by (shard, instance) (gateway_access_tunnels)`, "{{shard}} {{instance}}")),
					dashboard.Below(1), "docs/operators/access-sessions.md#runbook-a-tunnel-is-missing"),
				graph("Connections to API servers", "Connections of the session gateway, by way and outcome.", plot.PerSecond,
					query(`sum by (way, outcome) (rate(gateway_access_connections_total[$__rate_interval]))`, "{{way}} {{outcome}}")),
			}},
			{Title: "Keys", Panels: []dashboard.Panel{
				graph("Primary keys", "The primary key of each keyset.", plot.YesOrNo,
					query(`max by (keyset, key) (keyset_key_primary) == 1`, "{{keyset}} {{key}}")),
				graph("Keys to seal again", "Signing keys of clusters that a former sealing key sealed.", plot.Count,
					query(`max(cluster_service_signing_keys_to_reseal)`, "to seal again")),
			}},
		},
	}
}
