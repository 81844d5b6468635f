package test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// codeLink matches a link with an identifier as its text and a Go file as its target, such as [`Server.Run`](app/run.go).
var codeLink = regexp.MustCompile("\\[`([A-Za-z0-9_.]+)`\\]\\(([^)#\\s]+\\.go)\\)")

// TestDocumentedFunctionsExist checks that documents name functions, methods and types that the linked Go file declares.
func TestDocumentedFunctionsExist(t *testing.T) {
	declared := map[string]map[string]bool{}
	for _, file := range goFiles(t) {
		declared[file.path] = declaredNames(file.syntax)
	}
	walk(t, func(name string) {
		if path.Ext(name) != ".md" {
			return
		}
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range codeLink.FindAllStringSubmatch(string(text), -1) {
			identifier, target := match[1], path.Join(path.Dir(name), match[2])
			last := identifier[strings.LastIndexByte(identifier, '.')+1:]
			if !declared[target][last] {
				t.Errorf("%s: %s does not declare %s", name, target, identifier)
			}
		}
	})
}

// declaredNames returns the names of the functions, methods, types, constants and variables that a file declares.
func declaredNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			names[declaration.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// metricName is the name of a metric as Prometheus exports it.
var metricName = regexp.MustCompile("^\\| `([a-z][a-z0-9_]*)`")

// metricOptions are the types of client_golang with the fields Namespace, Subsystem and Name.
var metricOptions = map[string]bool{"CounterOpts": true, "GaugeOpts": true, "HistogramOpts": true, "SummaryOpts": true, "Opts": true}

// TestMetricsAreDocumented compares the metrics in the code with the table of docs/metrics.md, in both directions.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented, used := map[string]bool{}, map[string]bool{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if match := metricName.FindStringSubmatch(line); match != nil {
			documented[match[1]] = true
		}
	}
	for _, file := range goFiles(t) {
		if file.test() || file.generated() {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				return true
			}
			options, ok := literal.Type.(*ast.SelectorExpr)
			if !ok || !metricOptions[options.Sel.Name] || receiverName(options.X) != "prometheus" {
				return true
			}
			name, constant := metricNameOf(literal)
			if !constant {
				t.Errorf("%s: the name of a metric is not a literal", file.line(literal))
				return true
			}
			used[name] = true
			if !documented[name] {
				t.Errorf("%s: docs/metrics.md does not describe the metric %s", file.line(literal), name)
			}
			return true
		})
	}
	for name := range documented {
		if !used[name] {
			t.Errorf("docs/metrics.md describes the metric %s, which does not exist", name)
		}
	}
}

// metricNameOf returns the full name of a metric. constant is false if a part of it is not a string literal.
func metricNameOf(literal *ast.CompositeLit) (name string, constant bool) {
	parts := map[string]string{}
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key := receiverName(field.Key)
		if key != "Namespace" && key != "Subsystem" && key != "Name" {
			continue
		}
		value, ok := field.Value.(*ast.BasicLit)
		if !ok {
			return "", false
		}
		parts[key] = strings.Trim(value.Value, `"`)
	}
	var words []string
	for _, key := range []string{"Namespace", "Subsystem", "Name"} {
		if parts[key] != "" {
			words = append(words, parts[key])
		}
	}
	return strings.Join(words, "_"), true
}
