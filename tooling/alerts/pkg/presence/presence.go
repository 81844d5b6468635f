// Package presence has the table of the programs whose metrics alerts use, and renders the alert that fires if no replica of one of them exports
// metrics. All other alerts select series, so none of them fires for a program that exports nothing.
package presence

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// Alert is the name of the alert. Its label component is the name of a Component.
const Alert = "MetricsMissing"

// Component is a program whose metrics alerts use.
type Component struct {
	// Name is the name of the program.
	Name string
	// Prefix begins the names of the metrics that only this program exports.
	Prefix string
	// Metric is one of these that each replica exports from its start to its end.
	Metric string
	// Example are the labels of a series of the metric, for tests.
	Example string
	// Where is set for a program that some regions do not have: it states which ones do. Alert fires only where the program exported metrics within
	// the last day.
	Where string
	// Alert is another alert that fires without the metric and states more about it. The rule of this package leaves the component out.
	Alert string
}

// Components returns all components.
func Components() []Component {
	return []Component{
		{Name: "frontend", Prefix: "frontend_", Metric: "frontend_health"},
		{Name: "backend", Prefix: "backend_", Metric: "backend_groups_owned"},
		{Name: "admin", Prefix: "admin_", Metric: "admin_components_last_check_seconds", Alert: "ComponentsNotObserved"},
		{Name: "monitor", Prefix: "monitor_", Metric: "monitor_blind"},
		{Name: "gateway-access", Prefix: "gateway_access_", Metric: "gateway_access_recording_limit_bytes"},
		{Name: "gateway-grants", Prefix: "gateway_grants_", Metric: "gateway_grants_total", Example: `outcome="issued"`, Where: "regions on Kubernetes"},
		{Name: "gateway-egress", Prefix: "gateway_egress_", Metric: "gateway_egress_links_age_seconds", Where: "regions with the key gatewayEgress of the configuration"},
		{Name: "cluster-service", Prefix: "cluster_service_", Metric: "cluster_service_shard_capacity", Example: `shard="mgmt-1"`},
		{Name: "maestro-server", Prefix: "maestro_", Metric: "maestro_subscribers"},
		{Name: "maestro-agent", Prefix: "maestro_agent_", Metric: "maestro_agent_works"},
		{Name: "monitor-inside", Prefix: "monitor_inside_", Metric: "monitor_inside_clusters"},
		{Name: "gateway-tunnel", Prefix: "gateway_tunnel_", Metric: "gateway_tunnel_connected_replicas"},
		{Name: "hypershift-runtime", Prefix: "hypershift_", Metric: "hypershift_hosted_api_servers", Example: `state="ready"`, Where: "regions without AKS"},
		{Name: "egress-proxy", Prefix: "egress_", Metric: "egress_tunnels", Where: "regions without AKS"},
		{Name: "log-forwarder", Prefix: "customer_logs_", Metric: "customer_logs_streams", Where: "regions without AKS"},
		{Name: "management-audit", Prefix: "management_audit_", Metric: "management_audit_failing", Where: "regions without AKS"},
	}
}

// Of returns the component that exports a metric: the one with the longest prefix. It returns false if no component has it.
func Of(metric string) (Component, bool) {
	var found Component
	for _, c := range Components() {
		if strings.HasPrefix(metric, c.Prefix) && len(c.Prefix) > len(found.Prefix) {
			found = c
		}
	}
	return found, found.Name != ""
}

// hold is the time in minutes for which the metric must be missing.
const hold = 10

// Groups returns the rule group of the alert.
func Groups() []rule.Group {
	var absent []string
	for _, c := range ours() {
		absent = append(absent, c.expression())
	}
	return []rule.Group{{Name: "metrics-missing", Rules: []rule.Rule{{
		Alert:  Alert,
		Expr:   strings.Join(absent, " or "),
		For:    fmt.Sprintf("%dm", hold),
		Labels: map[string]string{"severity": string(rule.Page)},
		Annotations: map[string]string{
			"summary":   "no replica of {{ $labels.component }} exports its metrics",
			"impact":    "Objectives and alerts of the component do not fire, whatever its customers see.",
			"command":   "hcpctl explain",
			"runbook":   "docs/operators/monitoring.md#metrics-are-missing",
			"dashboard": "region",
		},
	}}}}
}

// ours returns the components without another alert.
func ours() []Component {
	var all []Component
	for _, c := range Components() {
		if c.Alert == "" {
			all = append(all, c)
		}
	}
	return all
}

// expression returns the condition that no replica exports the metric.
func (c Component) expression() string {
	absent := fmt.Sprintf(`label_replace(absent(%s), "component", %q, "", "")`, c.Metric, c.Name)
	if c.Where != "" {
		absent += fmt.Sprintf(" and on () present_over_time(%s[1d])", c.Metric)
	}
	return absent
}

// Tests returns the unit tests of the alert in a rule file: the series of one component after the other end. Those of components that some regions
// do not have exist only in their own test.
func Tests(file string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n", file)
	for _, missing := range ours() {
		fmt.Fprintf(&text, "- name: \"%s: %s\"\n  interval: 1m\n  input_series:\n", Alert, missing.Name)
		for _, c := range ours() {
			switch {
			case c.Name == missing.Name:
				// The samples of minutes 0 to 19 and from 41 on exist.
				c.series(&text, "1x19 stale _x19 1x20")
			case c.Where == "":
				c.series(&text, "1x60")
			}
		}
		text.WriteString("  promql_expr_test:\n")
		const ends = 20
		firing := func(minute int, labels, samples string) {
			fmt.Fprintf(&text, "  - {eval_time: %dm, expr: 'count(ALERTS{alertname=\"%s\",alertstate=\"firing\"%s})', exp_samples: [%s]}\n", minute, Alert, labels, samples)
		}
		firing(ends-1, "", "")
		firing(ends+hold-1, "", "")
		firing(ends+hold, "", "{labels: '{}', value: 1}")
		firing(ends+hold, fmt.Sprintf(",component=%q", missing.Name), "{labels: '{}', value: 1}")
		firing(41, "", "")
	}
	return text.String()
}

// series writes a series of the metric.
func (c Component) series(text *strings.Builder, values string) {
	labels := `instance="a"`
	if c.Example != "" {
		labels += "," + c.Example
	}
	fmt.Fprintf(text, "  - {series: '%s{%s}', values: '%s'}\n", c.Metric, labels, values)
}
