// Package check validates requests and responses against the ARM contract.
//
// A Contract is derived from the OpenAPI document of one api-version. Each body becomes a JSON Schema that is stricter than
// OpenAPI: unknown fields are violations, and a request must not contain read-only fields. The package is for tests of
// examples, of the frontend's responses and of recorded traffic. The frontend has its own validation and must not use it.
package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hcpmesh/hcpmesh/api/openapi"
)

// Contract validates the requests and responses of one api-version. It is safe for concurrent use.
type Contract struct {
	version    string
	operations map[string]operation
	routes     []route
}

// operation holds the schemas of the bodies of one operation.
type operation struct {
	// request is nil if the operation has no request body.
	request   *jsonschema.Schema
	responses map[string]response
}

type response struct {
	// body is nil if the document does not describe a body.
	body *jsonschema.Schema
	// headers maps the canonical names of the described headers to their types.
	headers map[string]string
}

// New returns the contract of an api-version. It returns an error if there is no document for it.
func New(version string) (*Contract, error) {
	name := path.Join(version, "openapi.json")
	content, err := fs.ReadFile(openapi.Files(), name)
	if err != nil {
		return nil, fmt.Errorf("reading the contract of api-version %s: %w", version, err)
	}
	var document described
	if err := json.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	requests, err := newSchemas(version, inRequest)
	if err != nil {
		return nil, err
	}
	responses, err := newSchemas(version, inResponse)
	if err != nil {
		return nil, err
	}
	contract := &Contract{version: version, operations: map[string]operation{}}
	for template, methods := range document.Paths {
		for method, of := range methods {
			compiled := operation{responses: map[string]response{}}
			at := []string{"paths", template, method}
			for i, parameter := range of.Parameters {
				if parameter.In != "body" {
					continue
				}
				if compiled.request, err = requests.compile(append(at, "parameters", strconv.Itoa(i), "schema")); err != nil {
					return nil, fmt.Errorf("compiling the request body of %s in %s: %w", of.OperationID, name, err)
				}
			}
			for status, described := range of.Responses {
				one := response{headers: map[string]string{}}
				for header, of := range described.Headers {
					one.headers[http.CanonicalHeaderKey(header)] = of.Type
				}
				if described.Schema != nil {
					if one.body, err = responses.compile(append(at, "responses", status, "schema")); err != nil {
						return nil, fmt.Errorf("compiling response %s of %s in %s: %w", status, of.OperationID, name, err)
					}
				}
				compiled.responses[status] = one
			}
			contract.operations[of.OperationID] = compiled
			contract.routes = append(contract.routes, newRoute(method, template, of.OperationID))
		}
	}
	return contract, nil
}

// described is the part of a document that New decodes.
type described struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct {
			In string `json:"in"`
		} `json:"parameters"`
		Responses map[string]struct {
			Schema  json.RawMessage `json:"schema"`
			Headers map[string]struct {
				Type string `json:"type"`
			} `json:"headers"`
		} `json:"responses"`
	} `json:"paths"`
}

// Request validates the body of a request. The body must be empty if the operation has none.
func (c *Contract) Request(operationID string, body []byte) error {
	described, err := c.operation(operationID)
	if err != nil {
		return err
	}
	if described.request == nil {
		if len(body) > 0 {
			return fmt.Errorf("%s takes no body, but the request has one", operationID)
		}
		return nil
	}
	if err := validate(described.request, body); err != nil {
		return fmt.Errorf("request %s at %s: %w", operationID, c.version, err)
	}
	return nil
}

// Response validates a response. A status that the contract does not list must be an error status. Described headers are
// optional but must have the described type. A body without a description is not validated.
func (c *Contract) Response(operationID string, status int, header http.Header, body []byte) error {
	described, err := c.operation(operationID)
	if err != nil {
		return err
	}
	if status == http.StatusNotModified {
		// RFC 9110, section 15.4.5: the response to a condition of the request, which the contract does not describe.
		if len(body) > 0 {
			return fmt.Errorf("response 304 of %s at %s has a body", operationID, c.version)
		}
		return nil
	}
	of, ok := described.responses[strconv.Itoa(status)]
	if !ok {
		of = described.responses["default"]
		if status < http.StatusBadRequest {
			return fmt.Errorf("%s at %s never responds with %d", operationID, c.version, status)
		}
	}
	var violations []error
	for name, kind := range of.headers {
		if value := header.Get(name); value != "" && kind == "integer" {
			if _, err := strconv.ParseInt(value, 10, 32); err != nil {
				violations = append(violations, fmt.Errorf("header %s is not a number: %q", name, value))
			}
		}
	}
	if of.body != nil {
		violations = append(violations, validate(of.body, body))
	}
	if err := errors.Join(violations...); err != nil {
		return fmt.Errorf("response %d of %s at %s: %w", status, operationID, c.version, err)
	}
	return nil
}

// Statuses returns the success statuses of an operation, in ascending order.
func (c *Contract) Statuses(operationID string) []int {
	var statuses []int
	for status := range c.operations[operationID].responses {
		if code, err := strconv.Atoi(status); err == nil { // skip "default", which describes errors
			statuses = append(statuses, code)
		}
	}
	slices.Sort(statuses)
	return statuses
}

func (c *Contract) operation(id string) (operation, error) {
	described, ok := c.operations[id]
	if !ok {
		return operation{}, fmt.Errorf("%s has no operation %s", c.version, id)
	}
	return described, nil
}

func validate(schema *jsonschema.Schema, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return schema.Validate(value)
}
