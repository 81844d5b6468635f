package httpcase

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tableExtension is the extension of the files of the folder cases that are tables.
const tableExtension = ".table"

var (
	caseLine    = regexp.MustCompile(`^([a-z0-9-]+): (.+)$`)
	requestLine = regexp.MustCompile(`^([A-Z]+) (\S+)(?: @(\S+))?$`)
	outcomeLine = regexp.MustCompile(`^([1-5][0-9]{2})(?: (.+))?$`)
)

const (
	// readBackLine requires that rejected requests of a section store nothing.
	readBackLine = "rejected: GET 404"
	// asSent requires that the response has the fields of the request.
	asSent = "as sent"
)

// paragraph reads the lines of one paragraph of a table into steps.
type paragraph struct {
	suite Suite
	steps []Step
	// request is the next step without its bodies. It has a status once an outcome has been read.
	request  Step
	readBack bool
	// changes are the changed fields of the request's body, and fields those of the expected body.
	changes, fields [][2]string
	errors          []failure
}

// failure is the error of a response, or one of its details.
type failure struct {
	Code    string    `json:"code"`
	Target  string    `json:"target,omitempty"`
	Message string    `json:"message"`
	Details []failure `json:"details,omitempty"`
}

// table returns the cases of a table.
func (s Suite) table(file string) ([]Case, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cases []Case
	var section paragraph
	for text := range strings.SplitSeq(strings.TrimSpace(string(content)), "\n\n") {
		first, lines, _ := strings.Cut(text, "\n")
		match := caseLine.FindStringSubmatch(first)
		if match == nil {
			section = paragraph{suite: s}
			if err := section.read(text); err != nil {
				return nil, err
			}
			continue
		}
		one := section
		one.steps = slices.Clone(section.steps)
		if err := one.read(lines); err != nil {
			return nil, fmt.Errorf("case %s: %w", match[1], err)
		}
		if len(one.steps) == len(section.steps) {
			return nil, fmt.Errorf("case %s has no outcome", match[1])
		}
		cases = append(cases, Case{Name: match[1], Reason: match[2], Steps: one.steps})
	}
	return cases, nil
}

func (p *paragraph) read(lines string) error {
	for line := range strings.SplitSeq(lines, "\n") {
		if err := p.readLine(strings.TrimSpace(line)); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	return p.end()
}

func (p *paragraph) readLine(line string) error {
	if name, ok := strings.CutPrefix(line, "include "); ok {
		included, err := p.suite.included(name)
		err = errors.Join(p.end(), err)
		p.steps = append(p.steps, included...)
		return err
	}
	if line == readBackLine {
		p.readBack = true
		return nil
	}
	if match := requestLine.FindStringSubmatch(line); match != nil {
		err := p.end()
		p.request, p.readBack = Step{Method: match[1], Target: match[2], BodyFile: match[3]}, false
		return err
	}
	if match := outcomeLine.FindStringSubmatch(line); match != nil {
		return p.outcome(match[1], match[2])
	}
	field, value, ok := strings.Cut(line, " = ")
	if !ok {
		return errors.New("the line is not a field, a request or an outcome")
	}
	if p.request.Status != "" {
		if err := p.end(); err != nil {
			return err
		}
	}
	p.changes = append(p.changes, [2]string{field, value})
	return nil
}

// outcome adds a line with the status and one error or one field of the expected body.
func (p *paragraph) outcome(status, rest string) error {
	if p.request.Status != "" && p.request.Status != status {
		return fmt.Errorf("the request also has the status %s", p.request.Status)
	}
	p.request.Status = status
	if rest == asSent {
		p.fields = slices.Clone(p.changes)
		return nil
	}
	if target, message, ok := strings.Cut(rest, ": "); ok && status >= "400" {
		p.errors = append(p.errors, failure{Code: "InvalidRequestContent", Target: target, Message: message})
	} else if field, value, ok := strings.Cut(rest, " = "); ok && status < "400" {
		p.fields = append(p.fields, [2]string{field, value})
	} else if rest != "" || status >= "400" {
		return errors.New("the outcome has no error and no field")
	}
	return nil
}

// end completes the step, if an outcome has been read.
func (p *paragraph) end() error {
	if p.request.Status == "" {
		if p.changes != nil {
			return errors.New("fields without an outcome")
		}
		return nil
	}
	step := p.request
	step.Name, step.Body = fmt.Sprintf("step %d", len(p.steps)+1), object(p.changes)
	step.ExpectedBody = object(p.fields)
	if len(p.errors) > 0 {
		expected := p.errors[0]
		if len(p.errors) > 1 {
			expected = failure{Code: "MultipleErrorsOccurred", Message: fmt.Sprintf("%d errors occurred", len(p.errors)), Details: p.errors}
		}
		body, err := json.Marshal(map[string]failure{"error": expected})
		if err != nil {
			return err
		}
		step.ExpectedHeaders, step.ExpectedBody = [][2]string{{"x-ms-error-code", expected.Code}}, string(body)
	}
	p.steps = append(p.steps, step)
	if p.readBack && len(p.errors) > 0 {
		p.steps = append(p.steps, Step{Name: step.Name + ", read back", Method: "GET", Target: step.Target, Status: "404"})
	}
	p.request.Status, p.changes, p.fields, p.errors = "", nil, nil, nil
	return nil
}

// object returns the JSON object that has the values at their paths, of which the names are separated by dots.
func object(values [][2]string) string {
	var members []string
	for len(values) > 0 {
		name, _, _ := strings.Cut(values[0][0], ".")
		value := values[0][1]
		var inner, others [][2]string
		for _, v := range values {
			if path, ok := strings.CutPrefix(v[0], name+"."); ok {
				inner = append(inner, [2]string{path, v[1]})
			} else if v[0] != name {
				others = append(others, v)
			}
		}
		if inner != nil {
			value = object(inner)
		}
		members = append(members, strconv.Quote(name)+": "+value)
		values = others
	}
	return "{" + strings.Join(members, ", ") + "}"
}
