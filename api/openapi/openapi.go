// Package openapi holds the ARM contract as OpenAPI 2 documents, one for each api-version.
//
// `make generate` writes the documents from the TypeSpec sources in ../typespec. They are embedded unchanged and never
// edited by hand. The types that all resource providers share are in common-types. The package reads from the documents
// only what is needed to address an operation. Package check validates requests and responses.
package openapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed 20* common-types
var files embed.FS

// Files returns the documents: VERSION/openapi.json, and common-types, to which they refer with relative paths.
func Files() fs.FS { return files }

// Versions returns the api-versions, oldest first.
func Versions() []string {
	entries, err := files.ReadDir(".") // sorted by name and therefore by date
	if err != nil {
		panic(fmt.Sprintf("openapi: reading the embedded folder: %v", err))
	}
	var versions []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "20") {
			versions = append(versions, entry.Name())
		}
	}
	return versions
}

// Operation is one HTTP method of one path.
type Operation struct {
	// ID is the operationId, for example NodePools_Get.
	ID string
	// Method is an HTTP method in upper case.
	Method string
	// Path is the path template, with {name} for each path parameter.
	Path       string
	Parameters []Parameter
}

// Parameter is a parameter of an operation.
type Parameter struct {
	Name string `json:"name"`
	// In is path, query or body.
	In       string `json:"in"`
	Required bool   `json:"required"`
}

// Operations returns the operations of an api-version by ID. It returns an error if there is no such api-version.
func Operations(version string) (map[string]Operation, error) {
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string            `json:"operationId"`
			Parameters  []json.RawMessage `json:"parameters"`
		} `json:"paths"`
	}
	name := path.Join(version, "openapi.json")
	if err := readJSON(name, &document); err != nil {
		return nil, err
	}
	operations := map[string]Operation{}
	for template, methods := range document.Paths {
		for method, described := range methods {
			operation := Operation{ID: described.OperationID, Method: strings.ToUpper(method), Path: template}
			for _, raw := range described.Parameters {
				parameter, err := readParameter(name, raw)
				if err != nil {
					return nil, fmt.Errorf("reading a parameter of %s in %s: %w", operation.ID, name, err)
				}
				operation.Parameters = append(operation.Parameters, parameter)
			}
			sort.SliceStable(operation.Parameters, func(i, j int) bool { return operation.Parameters[i].In < operation.Parameters[j].In })
			operations[operation.ID] = operation
		}
	}
	return operations, nil
}

// readParameter decodes a parameter of the document name. It resolves a reference to another document.
func readParameter(name string, raw json.RawMessage) (Parameter, error) {
	var parameter struct {
		Parameter
		Ref string `json:"$ref"`
	}
	if err := json.Unmarshal(raw, &parameter); err != nil {
		return Parameter{}, err
	}
	if parameter.Ref == "" {
		return parameter.Parameter, nil
	}
	file, pointer, _ := strings.Cut(parameter.Ref, "#/parameters/")
	if file != "" {
		name = path.Join(path.Dir(name), file)
	}
	var document struct {
		Parameters map[string]Parameter `json:"parameters"`
	}
	if err := readJSON(name, &document); err != nil {
		return Parameter{}, err
	}
	referred, ok := document.Parameters[pointer]
	if !ok {
		return Parameter{}, fmt.Errorf("reference %s not found in %s", parameter.Ref, name)
	}
	return referred, nil
}

func readJSON(name string, into any) error {
	content, err := files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("opening a document of the contract: %w", err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}
