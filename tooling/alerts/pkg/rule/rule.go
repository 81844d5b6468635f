// Package rule reads and writes the Prometheus rule files of the repository. A file NAME.rules.yaml has the rules, and the file
// NAME.tests.yaml beside it has their unit tests for promtool. The package needs no parser of PromQL, so that programs can read the objectives
// of a region (package slo) without it.
package rule

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// The suffixes of rule files and of the files with their tests.
const (
	Suffix      = ".rules.yaml"
	TestsSuffix = ".tests.yaml"
)

// Severity is the label severity of an alert.
type Severity string

// The severities.
const (
	// Page is for symptoms that customers notice, or will notice within hours, and that do not end by themselves. It wakes an engineer.
	Page Severity = "page"
	// Ticket is for causes that can wait for working hours.
	Ticket Severity = "ticket"
	// Heartbeat is for the alert that always fires. Its absence outside of the region means that no alert arrives.
	Heartbeat Severity = "heartbeat"
	// Planned is for an operation of an engineer. It notifies nobody, and silences the alerts that the operation causes.
	Planned Severity = "planned"
)

// File is a rule file.
type File struct {
	// Name is the path of the file, with slashes.
	Name   string  `json:"-"`
	Groups []Group `json:"groups"`
}

// Group is a list of rules that Prometheus evaluates together.
type Group struct {
	Name string `json:"name"`
	// Interval is the time between two evaluations; empty means the default of the server, one minute.
	Interval string `json:"interval,omitempty"`
	Rules    []Rule `json:"rules"`
}

// Rule is a recording rule or an alert.
type Rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Alerts returns the alerts of the file.
func (f *File) Alerts() []Rule {
	var alerts []Rule
	for _, group := range f.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				alerts = append(alerts, rule)
			}
		}
	}
	return alerts
}

// Read reads a rule file. An unknown field is an error.
func Read(files fs.FS, name string) (File, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return File{}, err
	}
	file := File{Name: name}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// Text returns the rules as a YAML file with a comment at its beginning.
func Text(comment string, groups []Group) string {
	var text strings.Builder
	for line := range strings.Lines(comment) {
		text.WriteString("# " + line)
	}
	text.WriteString("\ngroups:\n")
	for _, group := range groups {
		fmt.Fprintf(&text, "- name: %s\n", group.Name)
		if group.Interval != "" {
			fmt.Fprintf(&text, "  interval: %s\n", group.Interval)
		}
		text.WriteString("  rules:\n")
		for _, rule := range group.Rules {
			rule.write(&text)
		}
	}
	return text.String()
}

// write writes a rule as an element of a YAML list. Strings with quotes of Go are valid in YAML.
func (r *Rule) write(text *strings.Builder) {
	if r.Record != "" {
		fmt.Fprintf(text, "  - record: %s\n", r.Record)
	} else {
		fmt.Fprintf(text, "  - alert: %s\n", r.Alert)
	}
	fmt.Fprintf(text, "    expr: %s\n", strconv.Quote(r.Expr))
	if r.For != "" {
		fmt.Fprintf(text, "    for: %s\n", r.For)
	}
	for _, part := range []struct {
		name   string
		values map[string]string
	}{{"labels", r.Labels}, {"annotations", r.Annotations}} {
		if len(part.values) == 0 {
			continue
		}
		fmt.Fprintf(text, "    %s:\n", part.name)
		for _, key := range slices.Sorted(maps.Keys(part.values)) {
			fmt.Fprintf(text, "      %s: %s\n", key, strconv.Quote(part.values[key]))
		}
	}
}
