package schemamutation

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/openapi"
)

// Schema is the schema of a JSON value, with references resolved and extended schemas (allOf) merged.
type Schema struct {
	// Type is object, array, string, integer, boolean, or empty for any type.
	Type   string
	Format string
	// IDs lists the resource types that an ARM ID may have.
	IDs  []string
	Enum []string
	// The bounds are nil if the document sets none.
	Minimum, Maximum     *int64
	MinLength, MaxLength *int
	MinItems, MaxItems   *int
	Pattern              string
	Default              any
	// ReadOnly is set for values that only the service sets.
	ReadOnly bool
	// CreateOnly is set for values that cannot be updated because of their own mutability or that of an enclosing value.
	CreateOnly bool
	Required   []string
	// Properties are the schemas of an object's properties, Values is that of a map's values, Items that of an array's.
	Properties map[string]*Schema
	Values     *Schema
	Items      *Schema
}

// Resource returns the schema of a definition in an api-version's document.
func Resource(version, definition string) (*Schema, error) {
	r := reader{documents: map[string]map[string]any{}}
	return r.follow(path.Join(version, "openapi.json"), "#/definitions/"+definition, false)
}

// reader reads each document once.
type reader struct{ documents map[string]map[string]any }

// follow reads the schema that a reference in a file names.
func (r reader) follow(file, reference string, createOnly bool) (*Schema, error) {
	target, name, found := strings.Cut(reference, "#/definitions/")
	if !found {
		return nil, fmt.Errorf("%s: reference %q does not name a definition", file, reference)
	}
	if target != "" {
		file = path.Join(path.Dir(file), target)
	}
	if r.documents[file] == nil {
		content, err := fs.ReadFile(openapi.Files(), file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		var document map[string]any
		if err := json.Unmarshal(content, &document); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		r.documents[file] = document
	}
	definitions, _ := r.documents[file]["definitions"].(map[string]any)
	described, ok := definitions[name].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s does not define %s", file, name)
	}
	return r.schema(file, described, createOnly)
}

func (r reader) schema(file string, described map[string]any, createOnly bool) (*Schema, error) {
	s := &Schema{CreateOnly: createOnly}
	if mutability, ok := described["x-ms-mutability"].([]any); ok && !slices.Contains(mutability, any("update")) {
		s.CreateOnly = true
	}
	if reference, ok := described["$ref"].(string); ok {
		of, err := r.follow(file, reference, s.CreateOnly)
		if err != nil {
			return nil, err
		}
		of.ReadOnly = of.ReadOnly || described["readOnly"] == true
		return of, nil
	}
	if err := s.read(described); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, base := range array(described["allOf"]) {
		of, err := r.schema(file, base.(map[string]any), s.CreateOnly)
		if err != nil {
			return nil, err
		}
		s.extend(of)
	}
	properties, _ := described["properties"].(map[string]any)
	for name, value := range properties {
		of, err := r.schema(file, value.(map[string]any), s.CreateOnly)
		if err != nil {
			return nil, err
		}
		s.Properties[name] = of
	}
	var err error
	if items, ok := described["items"].(map[string]any); ok {
		s.Items, err = r.schema(file, items, s.CreateOnly)
	} else if values, ok := described["additionalProperties"].(map[string]any); ok {
		s.Values, err = r.schema(file, values, s.CreateOnly)
	}
	return s, err
}

// read reads the keywords of a schema. An unknown keyword is an error because it could be a constraint.
func (s *Schema) read(described map[string]any) error {
	s.Properties = map[string]*Schema{}
	for key, value := range described {
		switch key {
		case "type":
			s.Type = value.(string)
		case "format":
			s.Format = value.(string)
		case "enum":
			for _, word := range array(value) {
				s.Enum = append(s.Enum, word.(string))
			}
		case "minimum", "maximum":
			bound := int64(value.(float64))
			if key == "minimum" {
				s.Minimum = &bound
			} else {
				s.Maximum = &bound
			}
		case "minLength", "maxLength", "minItems", "maxItems":
			bound := int(value.(float64))
			*map[string]**int{"minLength": &s.MinLength, "maxLength": &s.MaxLength, "minItems": &s.MinItems, "maxItems": &s.MaxItems}[key] = &bound
		case "pattern":
			s.Pattern = value.(string)
		case "default":
			s.Default = value
		case "readOnly":
			s.ReadOnly = value == true
		case "required":
			for _, name := range array(value) {
				s.Required = append(s.Required, name.(string))
			}
		case "x-ms-arm-id-details":
			for _, allowed := range array(value.(map[string]any)["allowedResources"]) {
				s.IDs = append(s.IDs, allowed.(map[string]any)["type"].(string))
			}
		case "properties", "items", "additionalProperties", "allOf", "$ref", "x-ms-mutability":
			// The caller follows these.
		case "title", "description", "x-ms-enum", "x-ms-client-name", "x-ms-identifiers", "x-ms-azure-resource", "x-nullable", "x-ms-secret", "x-ms-client-flatten":
			// These constrain nothing.
		default:
			return fmt.Errorf("unknown schema keyword %q", key)
		}
	}
	if s.Type == "" && (s.Enum != nil || s.IDs != nil) {
		s.Type = "string"
	}
	if s.Type == "" && (described["properties"] != nil || described["allOf"] != nil) {
		s.Type = "object"
	}
	return nil
}

// extend adds the requirements and properties of an extended schema.
func (s *Schema) extend(base *Schema) {
	s.Required = append(s.Required, base.Required...)
	for name, property := range base.Properties {
		s.Properties[name] = property
	}
}

func array(value any) []any {
	values, _ := value.([]any)
	return values
}

// Writable returns the schemas of all values that a client may send by path, with [] after arrays and [*] after maps.
func (s *Schema) Writable() map[string]*Schema {
	all := map[string]*Schema{}
	s.writable("", all)
	return all
}

func (s *Schema) writable(at string, into map[string]*Schema) {
	for name, property := range s.Properties {
		if property.ReadOnly {
			continue
		}
		inner := name
		if at != "" {
			inner = at + "." + name
		}
		into[inner] = property
		property.writable(inner, into)
	}
	if s.Items != nil {
		into[at+"[]"] = s.Items
		s.Items.writable(at+"[]", into)
	}
	if s.Values != nil {
		into[at+"[*]"] = s.Values
		s.Values.writable(at+"[*]", into)
	}
}

// Prune removes the fields that the schema does not have from a JSON value, and returns the value.
func (s *Schema) Prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			of := s.Properties[name]
			if s.Values != nil {
				of = s.Values
			}
			if of == nil {
				delete(value, name)
				continue
			}
			value[name] = of.Prune(inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = s.Items.Prune(inner)
		}
	}
	return value
}
