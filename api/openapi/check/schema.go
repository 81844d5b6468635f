package check

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hcpmesh/hcpmesh/api/openapi"
)

// direction distinguishes request bodies from response bodies.
type direction string

const (
	inRequest  direction = "request"
	inResponse direction = "response"
)

// schemas compiles the schemas of one document for one direction.
type schemas struct {
	compiler *jsonschema.Compiler
	document string
}

// newSchemas converts the document of a version and the common types to JSON Schemas.
func newSchemas(version string, way direction) (*schemas, error) {
	base := "https://contract.invalid/" + string(way) + "/" // distinguishes documents; nothing is fetched
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.RegisterFormat(&jsonschema.Format{Name: "int32", Validate: isInt32})
	compiler.RegisterFormat(&jsonschema.Format{Name: "arm-id", Validate: isARMID})

	documents := map[string]any{}
	extended := map[string]bool{}
	err := fs.WalkDir(openapi.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".json") {
			return err
		}
		if !strings.HasPrefix(name, version+"/") && !strings.HasPrefix(name, "common-types/") {
			return nil
		}
		content, err := fs.ReadFile(openapi.Files(), name)
		if err != nil {
			return err
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(content)))
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		documents[name] = document
		findExtended(name, document, extended)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, document := range documents {
		converter{way: way, document: name, extended: extended}.walk("", "#", document)
		if err := compiler.AddResource(base+name, document); err != nil {
			return nil, fmt.Errorf("adding %s as a schema: %w", name, err)
		}
	}
	return &schemas{compiler: compiler, document: base + version + "/openapi.json"}, nil
}

// compile compiles the schema at the path of steps.
func (s *schemas) compile(steps []string) (*jsonschema.Schema, error) {
	pointer := "#"
	for _, step := range steps {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(step)
	}
	return s.compiler.Compile(s.document + pointer)
}

// findExtended records every schema that others extend with allOf. Only these may accept unknown fields.
func findExtended(name string, value any, extended map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		bases, _ := value["allOf"].([]any)
		for _, base := range bases {
			if object, ok := base.(map[string]any); ok {
				reference, _ := object["$ref"].(string)
				extended[absolute(name, reference)] = true
			}
		}
		for _, member := range value {
			findExtended(name, member, extended)
		}
	case []any:
		for _, element := range value {
			findExtended(name, element, extended)
		}
	}
}

// absolute returns a reference with the name of its document instead of a relative path.
func absolute(name, reference string) string {
	file, pointer, _ := strings.Cut(reference, "#")
	if file != "" {
		name = path.Join(path.Dir(name), file)
	}
	return name + "#" + pointer
}

// converter converts an OpenAPI document to JSON Schemas, in place.
type converter struct {
	way      direction
	document string
	extended map[string]bool
}

// walk converts a value, which is the member called member of its parent, and everything in it.
func (c converter) walk(member, pointer string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if member != "properties" && member != "definitions" && member != "paths" && member != "responses" && member != "headers" && member != "parameters" {
			c.schema(pointer, value)
		}
		for name, inner := range value {
			c.walk(name, pointer+"/"+name, inner)
		}
	case []any:
		for _, element := range value {
			c.walk("", pointer+"/", element)
		}
	}
}

// schema converts one OpenAPI schema to a JSON Schema. Objects that are not schemas have none of these members.
func (c converter) schema(pointer string, schema map[string]any) {
	if properties, ok := schema["properties"].(map[string]any); ok {
		if c.way == inRequest {
			c.forbidReadOnly(schema, properties)
		}
	}
	if (schema["properties"] != nil || schema["allOf"] != nil) && !c.extended[c.document+pointer] {
		schema["unevaluatedProperties"] = false
	}
	if schema["x-nullable"] == true {
		inner := map[string]any{}
		for name, value := range schema {
			inner[name] = value
			delete(schema, name)
		}
		delete(inner, "x-nullable")
		schema["anyOf"] = []any{inner, map[string]any{"type": "null"}}
	}
	if details, ok := schema["x-ms-arm-id-details"].(map[string]any); ok {
		schema["pattern"] = armIDPattern(details)
	}
}

// forbidReadOnly rejects read-only properties in requests and removes them from the required ones.
func (c converter) forbidReadOnly(schema, properties map[string]any) {
	var required []any
	wanted, _ := schema["required"].([]any)
	for _, name := range wanted {
		if property, _ := properties[name.(string)].(map[string]any); property["readOnly"] != true {
			required = append(required, name)
		}
	}
	delete(schema, "required")
	if len(required) > 0 {
		schema["required"] = required
	}
	for name, property := range properties {
		if property, _ := property.(map[string]any); property["readOnly"] == true {
			properties[name] = false
		}
	}
}

// armIDPattern returns a case-insensitive pattern for the resource IDs of the allowed types.
func armIDPattern(details map[string]any) string {
	var alternatives []string
	allowed, _ := details["allowedResources"].([]any)
	for _, one := range allowed {
		kind, _ := one.(map[string]any)["type"].(string)
		namespace, types, _ := strings.Cut(kind, "/")
		alternative := regexp.QuoteMeta(namespace)
		for _, segment := range strings.Split(types, "/") {
			alternative += "/" + regexp.QuoteMeta(segment) + "/[^/]+"
		}
		alternatives = append(alternatives, alternative)
	}
	return `(?i)^(/subscriptions/[^/]+(/resourceGroups/[^/]+)?)?/providers/(` + strings.Join(alternatives, "|") + `)$`
}

func isInt32(value any) error {
	number, ok := value.(json.Number)
	if !ok {
		return nil // the keyword type validates other types
	}
	if n, err := number.Int64(); err != nil || n < math.MinInt32 || n > math.MaxInt32 {
		return fmt.Errorf("%s is not a 32-bit integer", number)
	}
	return nil
}

func isARMID(value any) error {
	if id, ok := value.(string); ok && (!strings.HasPrefix(id, "/") || strings.HasSuffix(id, "/") || strings.Contains(id, "//")) {
		return fmt.Errorf("%q is not a resource ID", id)
	}
	return nil
}
