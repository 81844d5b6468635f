package rule

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Tests is a file with unit tests of promtool. It has only the fields that CheckTests reads.
type Tests struct {
	RuleFiles []string `json:"rule_files"`
	Tests     []Test   `json:"tests"`
}

// Test is a timeline of series, and what expressions return at some times.
type Test struct {
	Name        string       `json:"name"`
	Expressions []Expression `json:"promql_expr_test"`
}

// Expression is the expected result of an expression at a time.
type Expression struct {
	Expr     string           `json:"expr"`
	EvalTime string           `json:"eval_time"`
	Expected []map[string]any `json:"exp_samples"`
}

// firing matches an expression that counts the series of an alert that fires.
var firing = regexp.MustCompile(`^count\(ALERTS\{alertname="([A-Za-z0-9]+)",alertstate="firing"[^}]*\}\)$`)

// ReadTests reads the file with the tests of a rule file.
func ReadTests(files fs.FS, rules string) (Tests, error) {
	name := strings.TrimSuffix(rules, Suffix) + TestsSuffix
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return Tests{}, err
	}
	var tests Tests
	if err := yaml.Unmarshal(text, &tests); err != nil {
		return Tests{}, fmt.Errorf("%s: %w", name, err)
	}
	if len(tests.RuleFiles) == 0 || tests.RuleFiles[0] != path.Base(rules) {
		return Tests{}, fmt.Errorf("%s: the first of its rule_files must be %s", name, path.Base(rules))
	}
	return tests, nil
}

// CheckTests returns the alerts of a file that lack a test: a test in which the alert does not fire at first, fires later, and does not fire
// after that. An alert that always fires needs a test in which it fires.
func CheckTests(file File, tests Tests) []error {
	var found []error
	for _, alert := range file.Alerts() {
		always := alert.Labels["severity"] == string(Heartbeat)
		if !slices.ContainsFunc(tests.Tests, func(test Test) bool { return covers(test.Expressions, alert.Alert, always) }) {
			found = append(found, fmt.Errorf("%s: %s has no test in which it does not fire, then fires, and then ends", file.Name, alert.Alert))
		}
	}
	return found
}

// covers reports whether a test expects that an alert does not fire, fires, and does not fire, in this order.
func covers(expressions []Expression, alert string, always bool) bool {
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
