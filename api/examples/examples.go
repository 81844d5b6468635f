// Package examples holds a request and its answers for every operation of every api-version of the ARM contract.
//
// The OpenAPI documents refer to these files, and tests replay the requests: an example is a file that says what is sent and
// what is answered, and this package adds where it is sent, from the document. All examples of a version tell of one
// customer, whose names a test may replace with its own before it sends anything. Nothing here is read by a service.
package examples

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/openapi"
)

//go:embed 20*
var files embed.FS

// Example is one request, and what is answered to it.
type Example struct {
	// Version is the api-version.
	Version string
	// Name is that of the file: the operation and, where there are several, what is special about this one.
	Name  string
	Title string
	// OperationID, Method and Path are as in the OpenAPI document; Path has a {name} for each parameter in it.
	OperationID string
	Method      string
	Path        string
	// Parameters are the values of the operation's parameters by name: strings but for the body.
	Parameters map[string]json.RawMessage
	// Responses are the answers by status. Which of them a service gives depends on what there is already.
	Responses map[int]Response

	operation openapi.Operation
}

// Response is one answer.
type Response struct {
	// Headers are those of the answer that the contract describes.
	Headers map[string]any `json:"headers"`
	// Body is empty for an answer without one.
	Body json.RawMessage `json:"body"`
}

// Body is the body of the request; nil when it has none.
func (e *Example) Body() json.RawMessage {
	for _, parameter := range e.operation.Parameters {
		if parameter.In == "body" {
			return e.Parameters[parameter.Name]
		}
	}
	return nil
}

// Target is the request's path and query.
func (e *Example) Target() (string, error) {
	target, query := e.Path, url.Values{}
	for _, parameter := range e.operation.Parameters {
		raw, given := e.Parameters[parameter.Name]
		if parameter.In == "body" || !given {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", fmt.Errorf("the parameter %s of the example %s of %s: %w", parameter.Name, e.Name, e.Version, err)
		}
		switch parameter.In {
		case "path":
			target = strings.ReplaceAll(target, "{"+parameter.Name+"}", url.PathEscape(value))
		case "query":
			query.Set(parameter.Name, value)
		}
	}
	return target + "?" + query.Encode(), nil
}

// All are the examples of all api-versions, oldest version first, and by name.
func All() ([]Example, error) {
	var all []Example
	for _, version := range openapi.Versions() {
		examples, err := Of(version)
		if err != nil {
			return nil, err
		}
		all = append(all, examples...)
	}
	return all, nil
}

// Of are the examples of one api-version by name.
func Of(version string) ([]Example, error) {
	operations, err := openapi.Operations(version)
	if err != nil {
		return nil, err
	}
	entries, err := files.ReadDir(version)
	if err != nil {
		return nil, fmt.Errorf("no examples of the api-version %s: %w", version, err)
	}
	var examples []Example
	for _, entry := range entries {
		example, err := read(version, entry.Name(), operations)
		if err != nil {
			return nil, fmt.Errorf("the example %s of %s: %w", entry.Name(), version, err)
		}
		examples = append(examples, *example)
	}
	return examples, nil
}

// read reads a file and finds its operation.
func read(version, name string, operations map[string]openapi.Operation) (*Example, error) {
	content, err := files.ReadFile(path.Join(version, name))
	if err != nil {
		return nil, err
	}
	var file struct {
		Title       string                     `json:"title"`
		OperationID string                     `json:"operationId"`
		Parameters  map[string]json.RawMessage `json:"parameters"`
		Responses   map[string]Response        `json:"responses"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, err
	}
	operation, ok := operations[file.OperationID]
	if !ok {
		return nil, fmt.Errorf("there is no operation %s", file.OperationID)
	}
	example := &Example{
		Version: version, Name: strings.TrimSuffix(name, ".json"), Title: file.Title,
		OperationID: operation.ID, Method: operation.Method, Path: operation.Path,
		Parameters: file.Parameters, Responses: map[int]Response{}, operation: operation,
	}
	for status, response := range file.Responses {
		code, err := strconv.Atoi(status)
		if err != nil {
			return nil, fmt.Errorf("the status %q is no number", status)
		}
		example.Responses[code] = response
	}
	return example, nil
}
