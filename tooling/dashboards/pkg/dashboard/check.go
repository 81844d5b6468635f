package dashboard

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Checker checks dashboards.
type Checker struct {
	// Labels returns the labels that the result of an expression may have, or an error if it uses metrics or labels that do not exist.
	Labels func(expression string) ([]string, error)
	// Runbook returns an error if a runbook does not exist.
	Runbook func(name string) error
}

var (
	name         = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	legendLabel  = regexp.MustCompile(`\{\{ *([a-z_]+) *\}\}`)
	variableUsed = regexp.MustCompile(`\$([a-z]+)\b`)
)

// Check returns what is wrong with a dashboard, or nil.
func (c *Checker) Check(d *Dashboard) error {
	var found []error
	complain := func(format string, arguments ...any) {
		found = append(found, fmt.Errorf("%s: %w", d.Name, fmt.Errorf(format, arguments...)))
	}
	if !name.MatchString(d.Name) {
		complain("the name is not made of lower-case letters and hyphens")
	}
	if !strings.HasSuffix(d.Question, "?") {
		complain("%q is not a question", d.Question)
	}
	for _, v := range d.Variables {
		if labels, err := c.Labels(v.Metric); err != nil || !slices.Contains(labels, v.Label) {
			complain("variable %s: the label %s of %s: %w", v.Name, v.Label, v.Metric, errors.Join(err, errMissing))
		}
	}
	titles := map[string]bool{}
	for _, row := range d.Rows {
		if len(row.Panels) == 0 {
			complain("the row %s has no panel", row.Title)
		}
		for _, panel := range row.Panels {
			if titles[panel.Title] {
				complain("two panels are called %s", panel.Title)
			}
			titles[panel.Title] = true
			for _, err := range c.panel(d, &panel) {
				complain("%s: %w", panel.Title, err)
			}
		}
	}
	return errors.Join(found...)
}

var errMissing = errors.New("it must exist")

func (c *Checker) panel(d *Dashboard, p *Panel) []error {
	var found []error
	complain := func(format string, arguments ...any) { found = append(found, fmt.Errorf(format, arguments...)) }
	if !strings.HasSuffix(p.Meaning, ".") {
		complain("the meaning %q is not made of sentences", p.Meaning)
	}
	if len(p.Queries) == 0 {
		complain("it has no query")
	}
	if (p.Limit == nil) != (p.Runbook == "") {
		complain("a panel with a limit needs a runbook, and one without has none")
	}
	if p.Runbook != "" {
		if err := c.Runbook(p.Runbook); err != nil {
			complain("runbook: %w", err)
		}
	}
	for _, q := range p.Queries {
		for _, used := range variableUsed.FindAllStringSubmatch(strings.ReplaceAll(q.Expression, Window, ""), -1) {
			if !slices.ContainsFunc(d.Variables, func(v Variable) bool { return v.Name == used[1] }) {
				complain("%s: the dashboard has no variable %s", q.Expression, used[1])
			}
		}
		labels, err := c.Labels(d.Plain(q.Expression))
		if err != nil {
			complain("%s: %w", q.Expression, err)
			continue
		}
		for _, label := range legendLabel.FindAllStringSubmatch(q.Legend, -1) {
			if !slices.Contains(labels, label[1]) {
				complain("the legend uses the label %s, which %s does not have: it has %v", label[1], q.Expression, labels)
			}
		}
	}
	return found
}
