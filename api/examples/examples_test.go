package examples_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/api/openapi/check"
)

func TestExamplesAreValid(t *testing.T) {
	for _, version := range openapi.Versions() {
		t.Run(version, func(t *testing.T) {
			contract, err := check.New(version)
			if err != nil {
				t.Fatal(err)
			}
			for _, example := range of(t, version) {
				t.Run(example.Name, func(t *testing.T) {
					requireValid(t, contract, &example)
				})
			}
		})
	}
}

func requireValid(t *testing.T, contract *check.Contract, example *examples.Example) {
	target, err := example.Target()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := url.Parse(target)
	if err != nil || strings.ContainsAny(target, "{}") || parsed.Query().Get("api-version") != example.Version {
		t.Errorf("the request target %s has parameters without a value", target)
	}
	if !strings.HasPrefix(example.Name+"_", example.OperationID+"_") {
		t.Errorf("the file name does not begin with the operation ID %s", example.OperationID)
	}
	if err := contract.Request(example.OperationID, example.Body()); err != nil {
		t.Error(err)
	}
	for status, response := range example.Responses {
		header := http.Header{}
		for name, value := range response.Headers {
			header.Set(name, fmt.Sprint(value))
		}
		if err := contract.Response(example.OperationID, status, header, response.Body); err != nil {
			t.Error(err)
		}
		var resource struct {
			ID string `json:"id"`
		}
		if len(response.Body) > 0 {
			if err := json.Unmarshal(response.Body, &resource); err != nil {
				t.Error(err)
			}
		}
		if resource.ID != "" && resource.ID != parsed.Path {
			t.Errorf("response %d has the ID %s, but the request path is %s", status, resource.ID, parsed.Path)
		}
	}
}

// TestExamplesCoverTheContract checks that each operation, required parameter and success status of each api-version has an
// example.
func TestExamplesCoverTheContract(t *testing.T) {
	for _, version := range openapi.Versions() {
		t.Run(version, func(t *testing.T) {
			contract, err := check.New(version)
			if err != nil {
				t.Fatal(err)
			}
			operations, err := openapi.Operations(version)
			if err != nil {
				t.Fatal(err)
			}
			shown := map[string]map[int]bool{}
			for _, example := range of(t, version) {
				if shown[example.OperationID] == nil {
					shown[example.OperationID] = map[int]bool{}
				}
				for status := range example.Responses {
					shown[example.OperationID][status] = true
				}
				known := map[string]bool{}
				for _, parameter := range operations[example.OperationID].Parameters {
					known[parameter.Name] = true
					if _, given := example.Parameters[parameter.Name]; parameter.Required && !given {
						t.Errorf("%s: no value for %s", example.Name, parameter.Name)
					}
				}
				for name := range example.Parameters {
					if !known[name] {
						t.Errorf("%s: unknown parameter %s of %s", example.Name, name, example.OperationID)
					}
				}
			}
			for id := range operations {
				for _, status := range contract.Statuses(id) {
					if !shown[id][status] {
						t.Errorf("no example has response %d of %s", status, id)
					}
				}
			}
		})
	}
}

func of(t *testing.T, version string) []examples.Example {
	t.Helper()
	found, err := examples.Of(version)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
