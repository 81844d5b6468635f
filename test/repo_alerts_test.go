package test

import (
	stdcmp "cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/lint"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/presence"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/slo"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/boards"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
)

const (
	// objectivesFolder has the rules and the tests of the objectives, which are generated.
	objectivesFolder = "dev-infrastructure/alerts/objectives"
	// objectivesPage and alertsPage have generated tables.
	objectivesPage = "docs/slo.md"
	alertsPage     = "docs/operators/alerts.md"
	// metricsMissing has the alert about programs that export no metrics, and its tests, without their suffixes. Both are generated.
	metricsMissing = "dev-infrastructure/alerts/metrics-missing"
	// azureAlerts has the rule groups for the templates of a region.
	azureAlerts = "dev-infrastructure/azure/region/alerts.json"
)

// ruleFiles returns all rule files. Those of the objectives are first: other rules may use what they record.
func ruleFiles(t *testing.T) []rule.File {
	t.Helper()
	var names []string
	walk(t, func(name string) {
		if strings.HasSuffix(name, rule.Suffix) {
			names = append(names, name)
		}
	})
	slices.SortFunc(names, func(a, b string) int {
		if first, second := strings.HasPrefix(a, objectivesFolder), strings.HasPrefix(b, objectivesFolder); first != second {
			if first {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	files := make([]rule.File, len(names))
	for i, name := range names {
		files[i] = must.Get(rule.Read(os.DirFS(root(t)), name))(t)
	}
	return files
}

// TestAlertRules checks the schema of all alerts, that their runbooks exist, and that all expressions use metrics and labels of
// docs/metrics.md.
func TestAlertRules(t *testing.T) {
	linter := lint.Linter{Metrics: documentedMetrics(t), Runbook: func(name string) error { return findHeading(t, name) }, Command: checkCommand, Dashboard: checkDashboard}
	alerts := 0
	for _, file := range ruleFiles(t) {
		alerts += len(file.Alerts())
		for _, err := range linter.Lint(file) {
			t.Error(err)
		}
	}
	if alerts < 50 {
		t.Errorf("only %d alerts were found", alerts)
	}
}

// TestAlertRulesAreRejected runs the linter on rules that it must reject.
func TestAlertRulesAreRejected(t *testing.T) {
	valid := func() rule.Rule {
		return rule.Rule{Alert: "FrontendNotReady", Expr: "max by (instance) (frontend_health) < 1", Labels: map[string]string{"severity": "page"}, Annotations: map[string]string{
			"summary": "{{ $labels.instance }} is not ready", "impact": "Customers get errors.", "command": "hcpctl explain", "runbook": "docs/operators/component-away.md", "dashboard": "region"}}
	}
	check := func(rules ...rule.Rule) error {
		linter := lint.Linter{Metrics: documentedMetrics(t), Runbook: func(name string) error { return findHeading(t, name) }, Command: checkCommand, Dashboard: checkDashboard}
		return errors.Join(linter.Lint(rule.File{Name: "a.rules.yaml", Groups: []rule.Group{{Name: "a", Rules: rules}}})...)
	}
	must.Do(t, check(valid()))
	for reason, change := range map[string]func(*rule.Rule){
		"syntax":                    func(r *rule.Rule) { r.Expr = "max(" },
		"an unknown metric":         func(r *rule.Rule) { r.Expr = "max by (instance) (frontend_healthy) < 1" },
		"a histogram without part":  func(r *rule.Rule) { r.Expr = "max by (instance) (frontend_request_wait_seconds) > 1" },
		"an unknown matcher":        func(r *rule.Rule) { r.Expr = `max by (instance) (frontend_health{shard="a"}) < 1` },
		"an unknown label in by":    func(r *rule.Rule) { r.Expr = "max by (instance, shard) (frontend_health) < 1" },
		"an unknown label in on":    func(r *rule.Rule) { r.Expr = "frontend_health < on (shard) backend_groups_owned" },
		"a label that is not there": func(r *rule.Rule) { r.Annotations["impact"] = "Customers of {{ $labels.shard }} get errors." },
		"an aggregated label":       func(r *rule.Rule) { r.Expr = "max(frontend_health) < 1" },
		"another severity":          func(r *rule.Rule) { r.Labels["severity"] = "critical" },
		"no severity":               func(r *rule.Rule) { delete(r.Labels, "severity") },
		"no impact":                 func(r *rule.Rule) { delete(r.Annotations, "impact") },
		"another annotation":        func(r *rule.Rule) { r.Annotations["description"] = "It is not ready." },
		"no runbook":                func(r *rule.Rule) { r.Annotations["runbook"] = "docs/operators/none.md" },
		"no heading in the runbook": func(r *rule.Rule) { r.Annotations["runbook"] = "docs/operators/component-away.md#none" },
		"no dashboard":              func(r *rule.Rule) { delete(r.Annotations, "dashboard") },
		"another dashboard":         func(r *rule.Rule) { r.Annotations["dashboard"] = "none" },
		"another command":           func(r *rule.Rule) { r.Annotations["command"] = "kubectl get pods" },
		"a name in lower case":      func(r *rule.Rule) { r.Alert = "frontend_not_ready" },
	} {
		t.Run(reason, func(t *testing.T) {
			changed := valid()
			change(&changed)
			if err := check(changed); err == nil {
				t.Error("the rule was accepted")
			}
		})
	}
	if err := check(valid(), valid()); err == nil {
		t.Error("two alerts with the same name were accepted")
	}
}

// documentedMetrics returns the metrics of docs/metrics.md.
func documentedMetrics(t *testing.T) lint.Metrics {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(root(t), "docs", "metrics.md")))(t)
	return must.Get(lint.ParseMetrics(string(page)))(t)
}

// checkCommand accepts commands of hcpctl. TestDocumentedCommandsExist of hcpctl parses them.
func checkCommand(line string) error {
	if !strings.HasPrefix(line, "hcpctl ") {
		return fmt.Errorf("%q is not a command of hcpctl", line)
	}
	return nil
}

// checkDashboard accepts the names of dashboards.
func checkDashboard(name string) error {
	if !slices.ContainsFunc(boards.All(), func(d *dashboard.Dashboard) bool { return d.Name == name }) {
		return fmt.Errorf("there is no dashboard %q", name)
	}
	return nil
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// findHeading returns an error if a page, or the heading of its anchor, does not exist.
func findHeading(t *testing.T, name string) error {
	page, anchor, _ := strings.Cut(name, "#")
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(page)))
	if err != nil {
		return err
	}
	if anchor == "" {
		return nil
	}
	for _, found := range heading.FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-") == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s has no heading with the anchor %s", page, anchor)
}

// TestAlertsHaveTests checks that each alert has a unit test.
func TestAlertsHaveTests(t *testing.T) {
	for _, file := range ruleFiles(t) {
		tests, err := rule.ReadTests(os.DirFS(root(t)), file.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, err := range lint.CheckTests(file, tests) {
			t.Error(err)
		}
	}
}

// TestObjectives compares the rules, the tests and the page of the objectives with their table. With -update it rewrites them.
func TestObjectives(t *testing.T) {
	expected := map[string]bool{}
	for _, o := range slo.Objectives() {
		rules := path.Join(objectivesFolder, o.Name+rule.Suffix)
		comment := fmt.Sprintf("Generated from tooling/alerts/pkg/slo by go test ./test -run TestObjectives -update. Do not edit.\nObjective %s: %s (%.4g %% within 28 days).", o.Name, o.Promise, 100*o.Target)
		compareFile(t, rules, rule.Text(comment, o.Groups()))
		tests := path.Join(objectivesFolder, o.Name+rule.TestsSuffix)
		compareFile(t, tests, o.Tests(path.Base(rules)))
		expected[rules], expected[tests] = true, true
	}
	walk(t, func(name string) {
		if strings.HasPrefix(name, objectivesFolder+"/") && !expected[name] {
			t.Errorf("%s belongs to no objective", name)
		}
	})
	compareGenerated(t, objectivesPage, "<!-- objectives: generated by go test ./test -run TestObjectives -update -->\n", "<!-- end of objectives -->\n", slo.Table(slo.Objectives()))
}

// TestMetricsMissing compares the alert about programs that export no metrics with the table of the programs. With -update it rewrites the alert and
// its tests.
func TestMetricsMissing(t *testing.T) {
	const comment = "Generated from tooling/alerts/pkg/presence by go test ./test -run TestMetricsMissing -update. Do not edit.\nPrometheus rule about programs that export no metrics, so that none of their other alerts can fire."
	compareFile(t, metricsMissing+rule.Suffix, rule.Text(comment, presence.Groups()))
	compareFile(t, metricsMissing+rule.TestsSuffix, presence.Tests(path.Base(metricsMissing)+rule.Suffix))
}

// TestAlertsNoticeMissingMetrics checks that an alert fires if no replica of a program exports metrics, for each program that exports a metric of an
// alert: other alerts select series, so they do not fire then.
func TestAlertsNoticeMissingMetrics(t *testing.T) {
	files := ruleFiles(t)
	absent := must.Get(absentMetrics(files))(t)
	for _, c := range presence.Components() {
		if owner, _ := presence.Of(c.Metric); owner.Name != c.Name {
			t.Errorf("the metric %s of %s belongs to %s", c.Metric, c.Name, owner.Name)
		}
		if want := stdcmp.Or(c.Alert, presence.Alert); !slices.Contains(absent[c.Metric], want) {
			t.Errorf("%s: %s does not fire if %s is missing", c.Name, want, c.Metric)
		}
	}
	shared := sharedMetrics(t)
	for _, file := range files {
		for _, err := range unnoticed(file, shared) {
			t.Error(err)
		}
	}
	// Metrics of packages that several programs use are exported by each program with a chart.
	for _, w := range workload.All() {
		if !slices.ContainsFunc(presence.Components(), func(c presence.Component) bool { return c.Name == w.Program() }) {
			t.Errorf("no alert fires if %s exports no metrics: add it to presence.Components", w.Program())
		}
	}

	unknown := rule.File{Name: "a.rules.yaml", Groups: []rule.Group{{Rules: []rule.Rule{{Alert: "PortalSlow", Expr: "max(portal_latency_seconds) > 1"}, {Alert: "QueueFull", Expr: "max(audit_queue_bytes) > 1"}}}}}
	if errs := unnoticed(unknown, shared); len(errs) != 1 || !strings.Contains(errs[0].Error(), "PortalSlow") {
		t.Errorf("an alert with a metric of an unknown program: %v", errs)
	}
}

// absentMetrics returns the alerts that fire if no series of a metric exists, by metric.
func absentMetrics(files []rule.File) (map[string][]string, error) {
	alerts := map[string][]string{}
	for _, file := range files {
		for _, alert := range file.Alerts() {
			metrics, err := lint.Absent(alert.Expr)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.Name, alert.Alert, err)
			}
			for _, metric := range metrics {
				alerts[metric] = append(alerts[metric], alert.Alert)
			}
		}
	}
	return alerts, nil
}

// sharedMetrics returns the metrics that packages of internal export, and those that Prometheus creates.
func sharedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	shared := map[string]bool{"up": true}
	for _, m := range declaredMetrics(t) {
		if strings.HasPrefix(m.folder, "internal/") {
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				shared[m.name+suffix] = true
			}
		}
	}
	return shared
}

// unnoticed returns an error for each metric of a rule that neither belongs to a component nor is shared nor recorded.
func unnoticed(file rule.File, shared map[string]bool) []error {
	var found []error
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			selectors, err := lint.Selectors(r.Expr)
			if err != nil {
				return []error{fmt.Errorf("%s: %w", file.Name, err)}
			}
			for _, selector := range selectors {
				if _, ok := presence.Of(selector.Name); ok || shared[selector.Name] || strings.Contains(selector.Name, ":") {
					continue // a colon is in the names of recorded metrics only
				}
				found = append(found, fmt.Errorf("%s: %s%s uses %s, and no alert fires if its program exports no metrics: add the program to presence.Components", file.Name, r.Alert, r.Record, selector.Name))
			}
		}
	}
	return found
}

// TestAlertsPage compares the list of alerts in docs/operators/alerts.md with the rules. With -update it rewrites the list.
func TestAlertsPage(t *testing.T) {
	rows := map[rule.Severity][]string{}
	for _, file := range ruleFiles(t) {
		for _, alert := range file.Alerts() {
			severity := rule.Severity(alert.Labels["severity"])
			summary := templates.ReplaceAllString(alert.Annotations["summary"], "…")
			runbook := strings.TrimPrefix(alert.Annotations["runbook"], "docs/operators/")
			page, _, _ := strings.Cut(runbook, "#")
			rows[severity] = append(rows[severity], fmt.Sprintf("| `%s` | %s | %s | [%s](%s) | %s |\n", alert.Alert, summary, alert.For, strings.TrimSuffix(page, ".md"), runbook, alert.Annotations["dashboard"]))
		}
	}
	var text strings.Builder
	for _, severity := range []rule.Severity{rule.Page, rule.Ticket, rule.Heartbeat, rule.Planned} {
		slices.Sort(rows[severity])
		fmt.Fprintf(&text, "\n### Severity %s (%d)\n\n| alert | summary | for | runbook | dashboard |\n|---|---|---|---|---|\n%s", severity, len(rows[severity]), strings.Join(rows[severity], ""))
	}
	compareGenerated(t, alertsPage, "<!-- alerts: generated by go test ./test -run TestAlertsPage -update -->\n", "<!-- end of alerts -->\n", text.String()+"\n")
}

// templates matches the values and conditions of a summary.
var templates = regexp.MustCompile(`(\{\{[^}]*\}\})+( *\{\{[^}]*\}\})*`)

// TestAzureAlerts compares the rule groups for Azure Monitor with the rules. With -update it rewrites them.
func TestAzureAlerts(t *testing.T) {
	groups := must.Get(rule.AzureGroups(ruleFiles(t)))(t)
	text := must.Get(json.MarshalIndent(groups, "", "  "))(t)
	compareFile(t, azureAlerts, string(text)+"\n")
}

// compareFile compares a generated file with want. With -update it rewrites the file.
func compareFile(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join(root(t), filepath.FromSlash(name))
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(want), 0o644))
	}
	text := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is out of date: run go test ./test -run '^%s$' -update\n%s", name, t.Name(), diff)
	}
}
