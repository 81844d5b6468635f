package slo

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// Table returns the tables of docs/slo.md: the objectives, how each is measured, and the alerts.
func Table(objectives []*Objective) string {
	var text strings.Builder
	text.WriteString("\n| objective | target | each | budget of 28 days | alerts |\n|---|---|---|---|---|\n")
	for _, o := range objectives {
		each := "region"
		if len(o.By) > 0 {
			each = "`" + strings.Join(o.By, "`, `") + "`"
		}
		fmt.Fprintf(&text, "| `%s`: %s | %s %% | %s | %s %% of events | `%s…` |\n", o.Name, o.Promise, number(100*o.Target), each, number(100*o.Budget()), o.Alert)
	}
	text.WriteString("\n| objective | a good event | least errors |\n|---|---|---|\n")
	for _, o := range objectives {
		least := fmt.Sprint(o.MinErrors)
		if o.MinErrors == 0 {
			least = ""
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", o.Name, strings.ReplaceAll(o.Indicator.Describe(), "|", `\|`), least)
	}
	text.WriteString("\n| alert | budget spent | within | and still within | for | speed | severity |\n|---|---|---|---|---|---|---|\n")
	for _, b := range burns {
		severity := string(rule.Ticket)
		if b.page {
			var tickets []string
			for _, o := range objectives {
				if !o.Page {
					tickets = append(tickets, "`"+o.Name+"`")
				}
			}
			severity = string(rule.Page)
			if len(tickets) > 0 {
				severity += ", of " + strings.Join(tickets, ", ") + " " + string(rule.Ticket)
			}
		}
		fmt.Fprintf(&text, "| `…%s` | %s %% | %s | %s | %s | %s | %s |\n", b.suffix, number(100*b.spent), duration(b.long), duration(b.short), duration(b.hold), number(b.factor()), severity)
	}
	return text.String() + "\n"
}
