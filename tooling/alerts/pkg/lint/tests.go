package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// firing matches an expression that counts the series of an alert that fires.
var firing = regexp.MustCompile(`^count\(ALERTS\{alertname="([A-Za-z0-9]+)",alertstate="firing"[^}]*\}\)$`)

// CheckTests returns the alerts of a file that lack a test: a test in which the alert does not fire at first, fires later, and does not fire
// after that. An alert that always fires needs a test in which it fires.
func CheckTests(file rule.File, tests rule.Tests) []error {
	var found []error
	for _, alert := range file.Alerts() {
		always := alert.Labels["severity"] == string(rule.Heartbeat)
		if !slices.ContainsFunc(tests.Tests, func(test rule.Test) bool { return covers(test.Expressions, alert.Alert, always) }) {
			found = append(found, fmt.Errorf("%s: %s has no test in which it does not fire, then fires, and then ends", file.Name, alert.Alert))
		}
	}
	return found
}

// covers reports whether a test expects that an alert does not fire, fires, and does not fire, in this order.
func covers(expressions []rule.Expression, alert string, always bool) bool {
	type expectation struct {
		at    time.Duration
		fires bool
	}
	var ordered []expectation
	for _, e := range expressions {
		at, err := time.ParseDuration(e.EvalTime)
		if match := firing.FindStringSubmatch(e.Expr); err == nil && match != nil && match[1] == alert {
			ordered = append(ordered, expectation{at, len(e.Expected) > 0})
		}
	}
	slices.SortFunc(ordered, func(a, b expectation) int { return cmp.Compare(a.at, b.at) })
	first := slices.IndexFunc(ordered, func(e expectation) bool { return e.fires })
	if always {
		return first >= 0
	}
	return first > 0 && slices.ContainsFunc(ordered[first:], func(e expectation) bool { return !e.fires })
}
