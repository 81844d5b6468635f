// Package alertmanager renders the configuration of Alertmanager for an environment: which receiver gets which alerts, and which alerts are
// silent while another one, their cause, fires. The addresses of receivers are secrets, so the configuration names files that hold them.
package alertmanager

import (
	"fmt"
	"strings"
)

// The receivers. Each one but Nobody is a webhook, whose URL is in the file RECEIVER-url in the folder Folder.
const (
	// Pages wakes an engineer.
	Pages = "pages"
	// Tickets opens a ticket.
	Tickets = "tickets"
	// Heartbeats raises an alarm if it does not get an alert every few minutes. It is outside of the region.
	Heartbeats = "heartbeats"
	// Nobody is notified of planned operations. It has no webhook.
	Nobody = "nobody"
)

// Folder is where the pod of Alertmanager mounts the URLs of the receivers.
const Folder = "/etc/alertmanager/receivers"

// Environment is what the configuration depends on.
type Environment struct {
	// Name is CLOUD/ENVIRONMENT.
	Name string
	// Production is whether the environment has customers. Otherwise pages are tickets: nobody is woken for a test region.
	Production bool
}

// Inhibition silences alerts while their cause fires. Symptoms that customers notice are never silenced.
type Inhibition struct {
	// Reason states why the targets need no reaction of their own.
	Reason string
	// Source and Target are regular expressions of whole names of alerts.
	Source, Target string
	// SourceLabels are further conditions on the labels of the source, as matchers.
	SourceLabels []string
	// Equal are labels that both alerts must have with the same value, or both lack.
	Equal []string
}

// Inhibitions returns all inhibitions.
func Inhibitions() []Inhibition {
	return []Inhibition{
		{Reason: "The faster alert of an objective includes the slower ones.", Source: ".+BurnFast", Target: ".+Burn(Slow|3d)", Equal: []string{"slo", "kind", "request", "consumer", "grpc_service", "cluster_uid"}},
		{Reason: "The faster alert of an objective includes the slower ones.", Source: ".+BurnSlow", Target: ".+Burn3d", Equal: []string{"slo", "kind", "request", "consumer", "grpc_service", "cluster_uid"}},
		{Reason: "A component of the region is away, on which calls, deliveries and heartbeats of agents depend.", Source: "ComponentAway", SourceLabels: []string{`shard=""`},
			Target: "CallsBurn.+|DeliveryBurn.+|DeliveriesStand|AgentSilent|InsideProberSilent|AdminBurn.+"},
		{Reason: "The agent, or the API server of its management cluster, is away.", Source: "ComponentAway", SourceLabels: []string{`shard!=""`},
			Target: "AgentSilent|InsideProberSilent|DeliveriesStand|DeliveryBurn.+", Equal: []string{"shard"}},
		{Reason: "The agent carries the reports of the prober.", Source: "AgentSilent", Target: "InsideProberSilent", Equal: []string{"shard"}},
		{Reason: "Engineers took the management cluster out of service, and no cluster is left on it.", Source: "ShardOutOfService",
			Target: "AgentSilent|ComponentAway|DeliveriesStand|DeliveriesParked|DeliveryBurn.+", Equal: []string{"shard"}},
		{Reason: "The process does not run, so it exports no metrics.", Source: "ComponentAway", SourceLabels: []string{`shard=""`}, Target: "TargetDown"},
		{Reason: "The component does not run, so it exports no metrics.", Source: "ComponentAway", Target: "MetricsMissing", Equal: []string{"component"}},
		{Reason: "No replica exports metrics, so each of them is down.", Source: "MetricsMissing", Target: "TargetDown"},
		{Reason: "The APIs of a management cluster are away for one cause.", Source: "ShardAPIsDown", Target: "HostedAPIBurn(Fast|Slow)", Equal: []string{"shard"}},
		{Reason: "The monitor cannot see, so it proves nothing about clusters.", Source: "MonitorBlind", Target: "ShardAPIsDown|ClustersUnwatched"},
		{Reason: "Clusters without a replica of the monitor are not probed.", Source: "ClustersWithoutMonitor", Target: "ClustersUnwatched"},
		{Reason: "Deletions fail widely for one cause.", Source: "ManyDeletionStepsStuck", Target: "DeletionStepStuck|BackendDeletionStepStuck|DeletesBurn.+"},
		{Reason: "The region is full, so its shards are.", Source: "RegionNearlyFull", Target: "ShardNearlyFull"},
		{Reason: "The queue is full, or will be soon, because the export fails.", Source: "AuditQueueFilling", Target: "AuditExportFailing", Equal: []string{"job", "instance"}},
		{Reason: "The previous objective covers the same requests.", Source: "ARMBurnFast", Target: "ARM(Reads|Writes)Burn.+"},
	}
}

// Config returns the configuration of Alertmanager for an environment, as YAML.
func Config(environment Environment) string {
	var text strings.Builder
	pages := Pages
	if !environment.Production {
		pages = Tickets
	}
	fmt.Fprintf(&text, `# Generated from tooling/alerts/pkg/alertmanager by go test ./test -run TestAlertmanager -update. Do not edit.
# Environment %s. Pages go to the receiver %s.
route:
  receiver: %s
  group_by: [alertname, shard]
  group_wait: 1m
  group_interval: 10m
  repeat_interval: 24h
  routes:
  - matchers: ['severity="heartbeat"']
    receiver: %s
    group_wait: 0s
    group_interval: 1m
    repeat_interval: 1m
  - matchers: ['severity="planned"']
    receiver: %s
  - matchers: ['severity="page"']
    receiver: %s
    group_wait: 15s
    group_interval: 2m
    repeat_interval: 1h
inhibit_rules:
`, environment.Name, pages, Tickets, Heartbeats, Nobody, pages)
	for _, inhibition := range Inhibitions() {
		inhibition.write(&text)
	}
	text.WriteString("receivers:\n")
	for _, receiver := range []string{Pages, Tickets, Heartbeats} {
		if receiver == Pages && pages != Pages {
			continue
		}
		fmt.Fprintf(&text, "- name: %s\n  webhook_configs:\n  - url_file: %s/%s-url\n    send_resolved: %t\n    max_alerts: 100\n", receiver, Folder, receiver, receiver != Heartbeats)
	}
	fmt.Fprintf(&text, "- name: %s\n", Nobody)
	return text.String()
}

// write writes an inhibition as an element of a YAML list.
func (i *Inhibition) write(text *strings.Builder) {
	matcher := func(name, expression string) string { return fmt.Sprintf("'%s=~\"%s\"'", name, expression) }
	sources := matcher("alertname", i.Source)
	for _, label := range i.SourceLabels {
		sources += ", '" + label + "'"
	}
	fmt.Fprintf(text, "# %s\n- source_matchers: [%s]\n  target_matchers: [%s]\n", i.Reason, sources, matcher("alertname", i.Target))
	if len(i.Equal) > 0 {
		fmt.Fprintf(text, "  equal: [%s]\n", strings.Join(i.Equal, ", "))
	}
}
