package lint

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// Mutant is a copy of the groups of a rule file with one change in an alert. The tests of the alert must notice it.
type Mutant struct {
	// Alert is the name of the changed alert.
	Alert string
	// Change describes the change.
	Change string
	Groups []rule.Group
}

// Mutants returns the mutants of all alerts of a file: each number slightly larger and smaller, each comparison reversed, and one minute more
// and less for the time that the condition must hold. Rules that record are not changed.
func Mutants(file rule.File) ([]Mutant, error) {
	var mutants []Mutant
	for i, group := range file.Groups {
		for j, alert := range group.Rules {
			if alert.Alert == "" || alert.Labels["severity"] == string(rule.Heartbeat) {
				continue
			}
			changed, err := mutate(alert)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.Name, alert.Alert, err)
			}
			for _, c := range changed {
				groups := slices.Clone(file.Groups)
				groups[i].Rules = slices.Clone(group.Rules)
				groups[i].Rules[j] = c.alert
				mutants = append(mutants, Mutant{alert.Alert, fmt.Sprintf("%s %s", alert.Alert, c.change), groups})
			}
		}
	}
	return mutants, nil
}

// mutated is an alert with one change.
type mutated struct {
	change string
	alert  rule.Rule
}

func mutate(alert rule.Rule) ([]mutated, error) {
	node, err := parser.ParseExpr(alert.Expr)
	if err != nil {
		return nil, err
	}
	var all []mutated
	replace := func(from, to int, text string) {
		changed := alert
		changed.Expr = alert.Expr[:from] + text + alert.Expr[to:]
		all = append(all, mutated{fmt.Sprintf("has %s in place of %s: %s", text, alert.Expr[from:to], changed.Expr), changed})
	}
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.NumberLiteral:
			at := node.PositionRange()
			for _, value := range neighbours(node.Val) {
				replace(int(at.Start), int(at.End), strconv.FormatFloat(value, 'g', -1, 64))
			}
		case *parser.BinaryExpr:
			if other := reversed[node.Op]; other != "" {
				from, to := operator(alert.Expr, node)
				replace(from, to, other)
			}
		}
		return nil
	})
	if alert.For != "" {
		hold, err := time.ParseDuration(alert.For)
		if err != nil {
			return nil, err
		}
		for _, other := range []time.Duration{hold - time.Minute, hold + time.Minute} {
			changed := alert
			changed.For = fmt.Sprintf("%dm", int(other.Minutes()))
			all = append(all, mutated{fmt.Sprintf("fires after %s in place of %s", changed.For, alert.For), changed})
		}
	}
	return all, nil
}

// neighbours returns the numbers that replace a number: those that a test at the boundary must tell apart from it. Counts of few events and
// numbers of objects are integers.
func neighbours(value float64) []float64 {
	switch {
	case value == 0:
		return []float64{-1, 2}
	case value == float64(int(value)) && value < 20:
		return []float64{value - 2, value + 2}
	}
	return []float64{value * 0.9, value * 1.1}
}

// reversed has the opposite of each comparison.
var reversed = map[parser.ItemType]string{parser.GTR: "<=", parser.GTE: "<", parser.LSS: ">=", parser.LTE: ">", parser.EQLC: "!=", parser.NEQ: "=="}

// operator returns the place of the operator of an expression: between its sides, after the parentheses that end the left one.
func operator(text string, node *parser.BinaryExpr) (from, to int) {
	from = int(node.LHS.PositionRange().End)
	symbol := parser.ItemTypeStr[node.Op]
	for text[from:from+len(symbol)] != symbol {
		from++
	}
	return from, from + len(symbol)
}
