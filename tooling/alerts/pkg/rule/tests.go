package rule

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Tests is a file with unit tests of promtool. It has only the fields that checks of tests read.
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
