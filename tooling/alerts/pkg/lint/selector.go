package lint

import (
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Selector selects series of a metric by their labels. Selectors with the same text are equal.
type Selector struct {
	// Name is the name of the metric.
	Name string
	// text is the selector in PromQL, without range and offset.
	text     string
	matchers []*promlabels.Matcher
}

// Selectors returns the selectors of a PromQL expression. It returns an error if the expression cannot be parsed.
func Selectors(expression string) ([]Selector, error) {
	node, err := parser.ParseExpr(expression)
	if err != nil {
		return nil, err
	}
	var found []Selector
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		plain := parser.VectorSelector{Name: selector.Name, LabelMatchers: selector.LabelMatchers}
		found = append(found, Selector{Name: selector.Name, text: plain.String(), matchers: selector.LabelMatchers})
		return nil
	})
	return found, nil
}

// Absent returns the metrics of which a PromQL expression tests that no series exists, with absent. It returns an error if the expression cannot be parsed.
func Absent(expression string) ([]string, error) {
	node, err := parser.ParseExpr(expression)
	if err != nil {
		return nil, err
	}
	var metrics []string
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		if call, ok := node.(*parser.Call); ok && call.Func.Name == "absent" {
			if selector, ok := call.Args[0].(*parser.VectorSelector); ok && len(selector.LabelMatchers) == 1 { // the name
				metrics = append(metrics, selector.Name)
			}
		}
		return nil
	})
	return metrics, nil
}

// Matches reports whether the selector selects a series with the labels, among which __name__ is the name of the metric. A label that is not
// there is empty, as for Prometheus.
func (s Selector) Matches(series map[string]string) bool {
	for _, matcher := range s.matchers {
		if !matcher.Matches(series[matcher.Name]) {
			return false
		}
	}
	return true
}

// String returns the selector in PromQL, without range and offset.
func (s Selector) String() string { return s.text }
