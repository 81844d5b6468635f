// Package check says where a request or a response departs from the ARM contract.
//
// A Contract is made of the OpenAPI document of one api-version: each body that the document describes becomes a JSON
// Schema, stricter than OpenAPI in that a field that the contract does not know is a departure, and that a request must
// not carry what only the service says. It is meant for tests, whether of examples, of the frontend's answers or of
// recorded traffic; the frontend itself judges requests in its own words and must not be built on this.
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

// Contract judges the requests and responses of one api-version. It is safe for concurrent use.
type Contract struct {
	version    string
	operations map[string]operation
	routes     []route
}

// operation is what the document says of one operation's bodies.
type operation struct {
	// request is nil for an operation without a body.
	request   *jsonschema.Schema
	responses map[string]response
}

type response struct {
	// body is nil where the document does not describe one.
	body *jsonschema.Schema
	// headers are the types of the described headers by canonical name.
	headers map[string]string
}

// New reads the contract of an api-version.
func New(version string) (*Contract, error) {
	name := path.Join(version, "openapi.json")
	content, err := fs.ReadFile(openapi.Files(), name)
	if err != nil {
		return nil, fmt.Errorf("no contract of the api-version %s: %w", version, err)
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
					return nil, fmt.Errorf("the body of %s in %s: %w", of.OperationID, name, err)
				}
			}
			for status, described := range of.Responses {
				one := response{headers: map[string]string{}}
				for header, of := range described.Headers {
					one.headers[http.CanonicalHeaderKey(header)] = of.Type
				}
				if described.Schema != nil {
					if one.body, err = responses.compile(append(at, "responses", status, "schema")); err != nil {
						return nil, fmt.Errorf("the answer %s of %s in %s: %w", status, of.OperationID, name, err)
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

// described is what New reads of a document before its schemas are compiled.
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

// Request judges the body of a request; an operation without a body has none.
func (c *Contract) Request(operationID string, body []byte) error {
	described, err := c.operation(operationID)
	if err != nil {
		return err
	}
	if described.request == nil {
		if len(body) > 0 {
			return fmt.Errorf("%s takes no body, and the request has one", operationID)
		}
		return nil
	}
	if err := validate(described.request, body); err != nil {
		return fmt.Errorf("the request %s at %s: %w", operationID, c.version, err)
	}
	return nil
}

// Response judges a response. A status that the contract does not list must be that of an error. Headers that the
// contract describes need not be there, but must be of their type; a body that it does not describe is not judged.
func (c *Contract) Response(operationID string, status int, header http.Header, body []byte) error {
	described, err := c.operation(operationID)
	if err != nil {
		return err
	}
	of, ok := described.responses[strconv.Itoa(status)]
	if !ok {
		of = described.responses["default"]
		if status < http.StatusBadRequest {
			return fmt.Errorf("%s at %s never answers %d", operationID, c.version, status)
		}
	}
	var departures []error
	for name, kind := range of.headers {
		if value := header.Get(name); value != "" && kind == "integer" {
			if _, err := strconv.ParseInt(value, 10, 32); err != nil {
				departures = append(departures, fmt.Errorf("the header %s is no number: %q", name, value))
			}
		}
	}
	if of.body != nil {
		departures = append(departures, validate(of.body, body))
	}
	if err := errors.Join(departures...); err != nil {
		return fmt.Errorf("the answer %d of %s at %s: %w", status, operationID, c.version, err)
	}
	return nil
}

// Statuses are those that an operation answers with when it does what it is asked to.
func (c *Contract) Statuses(operationID string) []int {
	var statuses []int
	for status := range c.operations[operationID].responses {
		if code, err := strconv.Atoi(status); err == nil { // all but default, which stands for errors
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
