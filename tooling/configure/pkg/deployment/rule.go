package deployment

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// The scopes of rules.
const (
	scopeRegion = "region"
	scopeStamp  = "stamp"
)

// costLimit bounds the evaluation of one rule.
const costLimit = 100_000

// definition is a rule in the file.
type definition struct {
	Name   string   `yaml:"name"`
	Scope  string   `yaml:"scope"`
	Keys   []string `yaml:"keys"`
	Reason string   `yaml:"reason"`
	Assert string   `yaml:"assert"`
}

// Rule is a compiled rule.
type Rule struct {
	definition
	program cel.Program
	// variables are the names that the expression may use.
	variables []string
}

// Name returns the name of the rule.
func (r *Rule) Name() string { return r.definition.Name }

// Scope returns region or stamp.
func (r *Rule) Scope() string { return r.definition.Scope }

// Reason returns why the relation is required.
func (r *Rule) Reason() string { return r.definition.Reason }

// Keys returns the paths of the keys that the rule relates.
func (r *Rule) Keys() []string { return r.definition.Keys }

// parseRules reads rules from YAML. Expressions may use the variables.
func parseRules(text []byte, variables []string) ([]*Rule, error) {
	var file struct {
		Rules []definition `yaml:"rules"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	options := []cel.EnvOption{ext.Strings(), cidrFunction("cidrContains", contains), cidrFunction("cidrsOverlap", overlap)}
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("creating the environment of rules: %w", err)
	}
	seen := map[string]bool{}
	var rules []*Rule
	for i, d := range file.Rules {
		switch {
		case d.Name == "" || d.Reason == "" || len(d.Keys) == 0 || d.Assert == "":
			return nil, fmt.Errorf("rules[%d]: name, reason, keys and assert are required", i)
		case seen[d.Name]:
			return nil, fmt.Errorf("rules[%d]: the name %s appears twice", i, d.Name)
		case d.Scope != scopeRegion && d.Scope != scopeStamp:
			return nil, fmt.Errorf("rule %s: scope: %q is not region or stamp", d.Name, d.Scope)
		}
		seen[d.Name] = true
		program, err := compile(environment, d.Assert)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", d.Name, err)
		}
		rules = append(rules, &Rule{d, program, variables})
	}
	return rules, nil
}

func compile(environment *cel.Env, expression string) (cel.Program, error) {
	compiled, issues := environment.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if kind := compiled.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return nil, fmt.Errorf("the expression is of type %s; it must be bool", kind)
	}
	return environment.Program(compiled, cel.CostLimit(costLimit))
}

// checkRules evaluates the rules of a target's scope and returns the broken ones. values has the variables.
func checkRules(rules []*Rule, values *document.Node, stamp bool) document.Problems {
	scope := scopeRegion
	if stamp {
		scope = scopeStamp
	}
	set, _ := values.Plain().(map[string]any)
	var problems document.Problems
	for _, r := range rules {
		if r.definition.Scope != scope {
			continue
		}
		variables := map[string]any{}
		for _, name := range r.variables {
			variables[name] = set[name]
		}
		result, _, err := r.program.Eval(variables)
		switch {
		case err != nil:
			problems = append(problems, r.problem(values, fmt.Sprintf("the rule %s cannot be evaluated: %v", r.Name(), err)))
		case result != types.True:
			problems = append(problems, r.problem(values, fmt.Sprintf("breaks the rule %s: %s; %s", r.Name(), r.definition.Reason, r.facts(values))))
		}
	}
	return problems
}

// problem returns a problem at the first key of the rule.
func (r *Rule) problem(values *document.Node, text string) document.Problem {
	at, _ := values.Nearest(document.Split(r.Keys()[0])...)
	return document.Problem{Origin: at.Origin, Key: r.Keys()[0], Message: text}
}

// facts lists the keys of the rule with their values and origins.
func (r *Rule) facts(values *document.Node) string {
	var facts []string
	for _, key := range r.Keys() {
		switch n := values.Get(document.Split(key)...); {
		case n == nil:
			facts = append(facts, key+" is not set")
		case n.Kind == document.Scalar:
			facts = append(facts, fmt.Sprintf("%s is %v (%s)", key, n.Value, n.Origin))
		default:
			facts = append(facts, fmt.Sprintf("%s is at %s", key, n.Origin))
		}
	}
	return strings.Join(facts, ", ")
}

// cidrFunction declares a CEL function of two address ranges.
func cidrFunction(name string, decide func(a, b netip.Prefix) bool) cel.EnvOption {
	return cel.Function(name, cel.Overload(name+"_string_string", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
		cel.BinaryBinding(func(first, second ref.Val) ref.Val {
			var ranges [2]netip.Prefix
			for i, value := range []ref.Val{first, second} {
				text, _ := value.Value().(string)
				parsed, err := netip.ParsePrefix(text)
				if err != nil || parsed != parsed.Masked() {
					return types.NewErr("%q is not an address range", text)
				}
				ranges[i] = parsed
			}
			return types.Bool(decide(ranges[0], ranges[1]))
		})))
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Overlaps(inner)
}

func overlap(a, b netip.Prefix) bool { return a.Overlaps(b) }
