// Package lint checks rule files and their tests. Linter checks the schema of alerts, and that each expression uses metrics and labels that
// exist. CheckTests checks that each alert has a test in which it fires and ends. Mutants returns changed alerts, which tests must notice.
// The package parses expressions with the parser of Prometheus.
package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// annotations are the annotations of each alert.
var annotations = []string{"command", "dashboard", "impact", "runbook", "summary"}

var (
	alertName     = regexp.MustCompile(`^([A-Z][a-z0-9]*|[A-Z]{2,5})+$`)
	templateLabel = regexp.MustCompile(`\$labels\.([a-zA-Z_]+)`)
)

// Linter checks rule files.
type Linter struct {
	// Metrics are the metrics that programs export. Lint adds those of recording rules, so files with recording rules come first.
	Metrics Metrics
	// Runbook returns an error if a runbook, the path of a page with an optional #anchor, does not exist.
	Runbook func(name string) error
	// Command returns an error if a command line does not exist. It has placeholders in place of values of labels.
	Command func(line string) error
	// Dashboard returns an error if a dashboard, which is named like its UID in Grafana, does not exist.
	Dashboard func(name string) error

	alerts map[string]string
}

// Lint returns what is wrong with the rules of a file. It must see each file once, because names of alerts are unique.
func (l *Linter) Lint(file rule.File) []error {
	if l.alerts == nil {
		l.alerts, l.Metrics = map[string]string{}, maps.Clone(l.Metrics)
	}
	var found []error
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			for _, err := range l.rule(file.Name, r) {
				found = append(found, fmt.Errorf("%s: %s%s: %w", file.Name, r.Record, r.Alert, err))
			}
		}
	}
	return found
}

func (l *Linter) rule(file string, r rule.Rule) []error {
	result, err := l.Metrics.Labels(r.Expr)
	if err != nil {
		return []error{err}
	}
	all := append(result, slices.Sorted(maps.Keys(r.Labels))...)
	if r.Record != "" {
		// Several rules may record series of one metric, with different labels.
		all = append(all, l.Metrics[r.Record].Labels...)
		l.Metrics[r.Record] = Metric{Kind: recorded, Labels: slices.Compact(slices.Sorted(slices.Values(all)))}
		return nil
	}
	var found []error
	complain := func(format string, arguments ...any) { found = append(found, fmt.Errorf(format, arguments...)) }
	if other, ok := l.alerts[r.Alert]; ok {
		complain("%s has an alert with the same name", other)
	}
	l.alerts[r.Alert] = file
	if !alertName.MatchString(r.Alert) {
		complain("the name is not in camel case")
	}
	if severity := r.Labels["severity"]; !slices.Contains([]rule.Severity{rule.Page, rule.Ticket, rule.Heartbeat, rule.Planned}, rule.Severity(severity)) {
		complain("the severity %q is not one of page, ticket, heartbeat and planned", severity)
	}
	if keys := slices.Sorted(maps.Keys(r.Annotations)); !slices.Equal(keys, annotations) {
		complain("the annotations are %v; they must be %v", keys, annotations)
	}
	for key, text := range r.Annotations {
		for _, label := range templateLabel.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(all, label[1]) {
				complain("the annotation %s uses the label %s, which the alert does not have: it has %v", key, label[1], all)
			}
		}
	}
	if summary := r.Annotations["summary"]; strings.HasSuffix(summary, ".") || summary == "" {
		complain("the summary %q must be a line without a period at its end", summary)
	}
	if impact := r.Annotations["impact"]; !strings.HasSuffix(impact, ".") {
		complain("the impact %q must be sentences", impact)
	}
	if err := l.Runbook(r.Annotations["runbook"]); err != nil {
		complain("runbook: %w", err)
	}
	if err := l.Command(template.ReplaceAllString(r.Annotations["command"], "VALUE")); err != nil {
		complain("command: %w", err)
	}
	if err := l.Dashboard(r.Annotations["dashboard"]); err != nil {
		complain("dashboard: %w", err)
	}
	return found
}

// template matches a value in the template of an annotation.
var template = regexp.MustCompile(`\{\{[^}]*\}\}`)
