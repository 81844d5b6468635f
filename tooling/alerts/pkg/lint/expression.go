package lint

import (
	"fmt"
	"maps"
	"slices"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// labels is a set of names of labels.
type labels map[string]bool

func newLabels(names ...string) labels {
	set := labels{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// with returns the union of two sets.
func (l labels) with(other labels) labels {
	all := maps.Clone(l)
	maps.Copy(all, other)
	return all
}

// without returns the set without some names.
func (l labels) without(names ...string) labels {
	rest := maps.Clone(l)
	for _, name := range names {
		delete(rest, name)
	}
	return rest
}

// require returns an error if the set lacks one of the names.
func (l labels) require(names []string, where fmt.Stringer) error {
	for _, name := range names {
		if !l[name] {
			return fmt.Errorf("no series of %s has the label %s: it has %v", where, name, slices.Sorted(maps.Keys(l)))
		}
	}
	return nil
}

// Labels returns the labels that the result of a PromQL expression may have. It returns an error if the expression cannot be parsed, uses a
// metric that does not exist, or uses a label that the series do not have: in a matcher, in by, on or group_left.
func (m Metrics) Labels(expression string) ([]string, error) {
	node, err := parser.ParseExpr(expression)
	if err != nil {
		return nil, err
	}
	set, err := m.infer(node)
	return slices.Sorted(maps.Keys(set)), err
}

// infer returns the labels of the result of a node. Literals and scalars have none.
func (m Metrics) infer(node parser.Node) (labels, error) {
	switch node := node.(type) {
	case *parser.VectorSelector:
		return m.selected(node)
	case *parser.MatrixSelector:
		return m.infer(node.VectorSelector)
	case *parser.SubqueryExpr:
		return m.infer(node.Expr)
	case *parser.ParenExpr:
		return m.infer(node.Expr)
	case *parser.UnaryExpr:
		return m.infer(node.Expr)
	case *parser.StepInvariantExpr:
		return m.infer(node.Expr)
	case *parser.AggregateExpr:
		return m.aggregated(node)
	case *parser.BinaryExpr:
		return m.combined(node)
	case *parser.Call:
		return m.called(node)
	}
	return labels{}, nil
}

// selected returns the labels of the series of a selector.
func (m Metrics) selected(selector *parser.VectorSelector) (labels, error) {
	if selector.Name == "" {
		return nil, fmt.Errorf("%s has no name of a metric", selector)
	}
	set, err := m.labelsOf(selector.Name)
	if err != nil {
		return nil, err
	}
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name == promlabels.MetricName {
			continue
		}
		if err := set.require([]string{matcher.Name}, selector); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func (m Metrics) aggregated(node *parser.AggregateExpr) (labels, error) {
	inner, err := m.infer(node.Expr)
	if err != nil {
		return nil, err
	}
	if err := inner.require(node.Grouping, node.Expr); err != nil {
		return nil, err
	}
	switch {
	case node.Op == parser.TOPK || node.Op == parser.BOTTOMK:
		return inner, nil
	case node.Without:
		return inner.without(node.Grouping...), nil
	}
	return newLabels(node.Grouping...), nil
}

func (m Metrics) combined(node *parser.BinaryExpr) (labels, error) {
	left, err := m.infer(node.LHS)
	if err != nil {
		return nil, err
	}
	right, err := m.infer(node.RHS)
	if err != nil {
		return nil, err
	}
	matching := node.VectorMatching
	if matching == nil { // one of the sides is a scalar
		return left.with(right), nil
	}
	if matching.On {
		for side, set := range map[parser.Expr]labels{node.LHS: left, node.RHS: right} {
			if err := set.require(matching.MatchingLabels, side); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case node.Op == parser.LOR:
		return left.with(right), nil
	case node.Op == parser.LAND || node.Op == parser.LUNLESS:
		return left, nil
	case matching.Card == parser.CardManyToOne:
		return left.with(newLabels(matching.Include...)), right.require(matching.Include, node.RHS)
	case matching.Card == parser.CardOneToMany:
		return right.with(newLabels(matching.Include...)), left.require(matching.Include, node.LHS)
	case matching.On:
		return newLabels(matching.MatchingLabels...), nil
	}
	return left.without(matching.MatchingLabels...), nil
}

func (m Metrics) called(call *parser.Call) (labels, error) {
	all := labels{}
	for _, argument := range call.Args {
		set, err := m.infer(argument)
		if err != nil {
			return nil, err
		}
		all = all.with(set)
	}
	switch call.Func.Name {
	case "absent", "absent_over_time":
		// The result has the labels of matchers with =; the argument may also be another expression, whose result has none.
		set := labels{}
		if selector, ok := call.Args[0].(*parser.VectorSelector); ok {
			for _, matcher := range selector.LabelMatchers {
				if matcher.Type == promlabels.MatchEqual && matcher.Name != promlabels.MetricName {
					set[matcher.Name] = true
				}
			}
		}
		return set, nil
	case "scalar":
		return labels{}, nil
	case "histogram_quantile":
		return all.without("le"), nil
	case "label_replace", "label_join":
		if name, ok := call.Args[1].(*parser.StringLiteral); ok {
			all[name.Val] = true
		}
	}
	return all, nil
}
