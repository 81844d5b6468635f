// Package httpcase runs artifact cases against an HTTP API. A case is a folder, and each of its files is a step: a request
// and the expected response. Cases need only a base URL and run against every implementation of the API. The API is ARM's
// unless a Target has Variables.
//
// A step file contains the request line, headers, an empty line and a body, then the line `--- response` and the expected
// status, headers and body. {{name}} is replaced by a variable. The body of a request may be `@file.json`, a file of the
// folder bodies, followed by an RFC 7396 merge patch to it. An object in a body may be such a patch too: its member
// "@": "file.json" names the file.
//
// An expected object must be part of the received one; an expected array must have the same number of items. In expected
// strings, {{any}} matches any text, and {{capture:x}} matches any text and stores it as the variable x. The value
// "{{absent}}" requires that the field is absent. A step whose request line starts with `eventually` is repeated until the
// response is as expected. A file with the content `include name` is replaced by the steps of that folder.
//
// Two functions generate long values: {{chars:257}} is 257 letters, and {{repeat:3}}{"key": "key-#"}{{end}} is its content
// three times, separated by commas, with # replaced by the number from 1.
//
// Cases that send one request with different fields are the paragraphs of a table, a file cases/NAME.table. A paragraph
// without a name begins a section: its lines are the setup and the request line of the cases that follow.
//
//	include ready-cluster
//	PUT {{pool}}?api-version={{api-version}} @nodepool.json
//	rejected: GET 404
//
//	nodepool-disk-small: A disk has at least 64 GiB.
//	  properties.platform.osDisk.sizeGiB = 63
//	  400 properties.platform.osDisk.sizeGiB: Invalid value: 63: must be greater than or equal to 64
//
// Lines `field = value` are the merge patch of the body, or the whole body of a request line without a file. Lines that begin
// with a status are the outcome: one error per line as `400 target: message`, or one field of the expected body per line as
// `201 field = value`, or `201 as sent` for all fields of the request. One error has the code InvalidRequestContent; several are
// the details of MultipleErrorsOccurred. After an outcome, a case may continue with fields, includes and request lines.
// `rejected: GET 404` in a section requires that each rejected request of its request line stores nothing.
package httpcase

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Case is one folder or one paragraph of a table.
type Case struct {
	Name string
	// Reason is the behaviour that the case tests, from its README.md or the first line of its paragraph.
	Reason string
	Steps  []Step
}

// Step is one request and its expected response.
type Step struct {
	// Name is the step's file, or its number in a table.
	Name       string
	Eventually bool
	Method     string
	Target     string
	// Headers are sent in addition to the target's; a name that starts with `-` removes one of these.
	Headers [][2]string
	// Body is the content, or the merge patch for the content of BodyFile if that is set.
	Body     string
	BodyFile string

	Status          string
	ExpectedHeaders [][2]string
	ExpectedBody    string
}

// Suite is a set of cases. Dir contains the folders cases, steps and bodies.
type Suite struct{ Dir string }

// Load returns all cases in order of name.
func (s Suite) Load() ([]Case, error) {
	folders, err := os.ReadDir(filepath.Join(s.Dir, "cases"))
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, folder := range folders {
		dir := filepath.Join(s.Dir, "cases", folder.Name())
		if strings.HasSuffix(dir, tableExtension) {
			rows, err := s.table(dir)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", folder.Name(), err)
			}
			cases = append(cases, rows...)
			continue
		}
		reason, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			return nil, fmt.Errorf("case %s has no reason: %w", folder.Name(), err)
		}
		steps, err := s.steps(dir)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", folder.Name(), err)
		}
		cases = append(cases, Case{Name: folder.Name(), Reason: strings.TrimSpace(string(reason)), Steps: steps})
	}
	slices.SortFunc(cases, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(cases); i++ {
		if cases[i].Name == cases[i-1].Name {
			return nil, fmt.Errorf("two cases have the name %s", cases[i].Name)
		}
	}
	return cases, nil
}

// included returns the steps of a folder of the folder steps.
func (s Suite) included(name string) ([]Step, error) {
	included, err := s.steps(filepath.Join(s.Dir, "steps", name))
	if err == nil && len(included) == 0 {
		err = fmt.Errorf("include %q has no steps", name)
	}
	return included, err
}

func (s Suite) steps(dir string) ([]Step, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.http"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var steps []Step
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "include "); ok {
			included, err := s.included(name)
			if err != nil {
				return nil, err
			}
			steps = append(steps, included...)
			continue
		}
		step, err := parse(string(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		step.Name = filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		steps = append(steps, step)
	}
	return steps, nil
}

func parse(text string) (Step, error) {
	request, response, ok := strings.Cut(text, "--- response\n")
	if !ok {
		return Step{}, fmt.Errorf("the line `--- response` is missing")
	}
	first, headers, body := split(request)
	words := strings.Fields(first)
	step := Step{Headers: headers, Body: body}
	if len(words) > 0 && words[0] == "eventually" {
		step.Eventually, words = true, words[1:]
	}
	if len(words) != 2 {
		return Step{}, fmt.Errorf("%q is not a method and a target", first)
	}
	step.Method, step.Target = words[0], words[1]
	if rest, ok := strings.CutPrefix(body, "@"); ok {
		step.BodyFile, step.Body, _ = strings.Cut(rest, "\n")
	}
	step.Status, step.ExpectedHeaders, step.ExpectedBody = split(response)
	return step, nil
}

// split returns the first line, the headers and the body of a message, the body without surrounding space.
func split(message string) (first string, headers [][2]string, body string) {
	head, body, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n\n")
	lines := strings.Split(strings.TrimRight(head, "\n"), "\n")
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		headers = append(headers, [2]string{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	return lines[0], headers, strings.TrimSpace(body)
}

// body returns the content of a step's request.
func (s Suite) body(step Step, variables map[string]string) ([]byte, error) {
	body := expand(step.Body, variables)
	if step.BodyFile == "" && !strings.Contains(body, `"@": "`) {
		return []byte(body), nil
	}
	object := map[string]any{}
	if strings.TrimSpace(body) != "" {
		var err error
		if object, err = wire.ParseObject([]byte(body)); err != nil {
			return nil, fmt.Errorf("the patch of %s: %w", step.BodyFile, err)
		}
	}
	if step.BodyFile != "" {
		object["@"] = step.BodyFile
	}
	value, err := s.resolve(object, variables)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(value)
	return out.Bytes(), err
}

// resolve replaces each object with the member "@", the name of a file of the folder bodies, by the file's content, and applies
// the other members as a merge patch.
func (s Suite) resolve(value any, variables map[string]string) (any, error) {
	var err error
	switch value := value.(type) {
	case []any:
		for i := range value {
			if value[i], err = s.resolve(value[i], variables); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range value {
			if value[name], err = s.resolve(value[name], variables); err != nil {
				return nil, err
			}
		}
		file, ok := value["@"].(string)
		if !ok {
			return value, nil
		}
		delete(value, "@")
		content, err := os.ReadFile(filepath.Join(s.Dir, "bodies", file))
		if err != nil {
			return nil, err
		}
		base, err := wire.ParseObject([]byte(expand(string(content), variables)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return wire.MergePatch(base, value), nil
	}
	return value, nil
}

var (
	chars  = regexp.MustCompile(`\{\{chars:([0-9]{1,7})\}\}`)
	repeat = regexp.MustCompile(`(?s)\{\{repeat:([0-9]{1,5})\}\}(.*?)\{\{end\}\}`)
)

// expand replaces the known variables and the generated values in text.
func expand(text string, variables map[string]string) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	text = repeat.ReplaceAllStringFunc(text, func(found string) string {
		part := repeat.FindStringSubmatch(found)
		count, _ := strconv.Atoi(part[1])
		items := make([]string, count)
		for i := range items {
			items[i] = strings.ReplaceAll(part[2], "#", strconv.Itoa(i+1))
		}
		return strings.Join(items, ",")
	})
	text = chars.ReplaceAllStringFunc(text, func(found string) string {
		count, _ := strconv.Atoi(chars.FindStringSubmatch(found)[1])
		return strings.Repeat("a", count)
	})
	for name, value := range variables {
		text = strings.ReplaceAll(text, "{{"+name+"}}", value)
	}
	return text
}
