// Package examples holds a request with its responses for every operation of every api-version of the ARM contract.
//
// The OpenAPI documents refer to these files, and tests replay the requests. A file contains the parameters and the
// responses; the package adds method and path from the OpenAPI document. All examples of an api-version use the names of one
// customer, which a test may replace before it sends a request. Services do not use this package.
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

// Example is a request with its responses.
type Example struct {
	// Version is the api-version.
	Version string
	// Name is the name of the file without extension: the operation ID and an optional suffix.
	Name  string
	Title string
	// OperationID, Method and Path come from the OpenAPI document. Path has {name} for each path parameter.
	OperationID string
	Method      string
	Path        string
	// Parameters maps parameter names to values: strings, and an object for the body.
	Parameters map[string]json.RawMessage
	// Responses maps statuses to responses. The state of the resource decides which one a service sends.
	Responses map[int]Response

	operation openapi.Operation
}

// Response is one response.
type Response struct {
	// Headers holds the headers that the contract describes.
	Headers map[string]any `json:"headers"`
	// Body is empty if the response has none.
	Body json.RawMessage `json:"body"`
}

// Body returns the request body, or nil if there is none.
func (e *Example) Body() json.RawMessage {
	for _, parameter := range e.operation.Parameters {
		if parameter.In == "body" {
			return e.Parameters[parameter.Name]
		}
	}
	return nil
}

// Target returns path and query of the request.
func (e *Example) Target() (string, error) {
	target, query := e.Path, url.Values{}
	for _, parameter := range e.operation.Parameters {
		raw, given := e.Parameters[parameter.Name]
		if parameter.In == "body" || !given {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", fmt.Errorf("parameter %s of example %s at %s: %w", parameter.Name, e.Name, e.Version, err)
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

// Of returns the examples of one api-version, sorted by name.
func Of(version string) ([]Example, error) {
	operations, err := openapi.Operations(version)
	if err != nil {
		return nil, err
	}
	entries, err := files.ReadDir(version)
	if err != nil {
		return nil, fmt.Errorf("reading the examples of api-version %s: %w", version, err)
	}
	var examples []Example
	for _, entry := range entries {
		example, err := read(version, entry.Name(), operations)
		if err != nil {
			return nil, fmt.Errorf("example %s at %s: %w", entry.Name(), version, err)
		}
		examples = append(examples, *example)
	}
	return examples, nil
}

// read decodes a file and adds its operation.
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
		return nil, fmt.Errorf("no operation %s in the contract", file.OperationID)
	}
	example := &Example{
		Version: version, Name: strings.TrimSuffix(name, ".json"), Title: file.Title,
		OperationID: operation.ID, Method: operation.Method, Path: operation.Path,
		Parameters: file.Parameters, Responses: map[int]Response{}, operation: operation,
	}
	for status, response := range file.Responses {
		code, err := strconv.Atoi(status)
		if err != nil {
			return nil, fmt.Errorf("status %q is not a number", status)
		}
		example.Responses[code] = response
	}
	return example, nil
}
