// Package schema checks values against the configuration's JSON Schema (draft 2020-12) and reads the annotations of its keys.
//
// JSON Schema allows keywords of one's own. The annotations are: x-layer, the innermost level that may set a key; x-computed, a key
// that no layer may set; x-unique, a name that two units must not share; x-data-store, a value whose change replaces a data store;
// x-deploy, a key that is required before a deployment; x-configures, the flags and configuration files that get the value; and
// x-used-by, its other users. Package schema never quotes a value in the place of a secret.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// Unit is the set of targets in which names are unique.
type Unit string

// The units of x-unique.
const (
	// UniqueInCloud is for names that Azure keeps unique in a cloud, for example those of storage accounts.
	UniqueInCloud Unit = "cloud"
	// UniqueInEnvironment is for names that must differ between the regions of an environment.
	UniqueInEnvironment Unit = "environment"
)

// Property is the schema of one key.
type Property struct {
	Ref                  string               `json:"$ref"`
	Type                 string               `json:"type"`
	Description          string               `json:"description"`
	Properties           map[string]*Property `json:"properties"`
	AdditionalProperties json.RawMessage      `json:"additionalProperties"`
	Items                *Property            `json:"items"`
	Required             []string             `json:"required"`
	Enum                 []any                `json:"enum"`
	Minimum              *float64             `json:"minimum"`
	Maximum              *float64             `json:"maximum"`
	Pattern              string               `json:"pattern"`

	Layer      string   `json:"x-layer"`
	Computed   bool     `json:"x-computed"`
	Unique     Unit     `json:"x-unique"`
	DataStore  bool     `json:"x-data-store"`
	Deploy     bool     `json:"x-deploy"`
	Configures []string `json:"x-configures"`
	UsedBy     []string `json:"x-used-by"`

	pointer string
	values  *Property // the schema of additional keys, or nil
}

// secretReference is the definition of a reference to a secret.
const secretReference = "#/$defs/secretReference"

// Secret reports whether the key is a reference to a secret.
func (p *Property) Secret() bool { return p.Ref == secretReference }

// imageDefinition is the definition of a container image.
const imageDefinition = "#/$defs/image"

// Image reports whether the key is a container image, with the keys registry, repository and digest.
func (p *Property) Image() bool { return p.Ref == imageDefinition }

// Level returns the innermost level that may set the key.
func (p *Property) Level() int { return slices.Index(layer.Levels[:], p.Layer) }

// Schema is the compiled schema of the configuration.
type Schema struct {
	root     *Property
	defs     map[string]*Property
	compiled *jsonschema.Schema
	compiler *jsonschema.Compiler
	// parts are the compiled schemas of single keys, by JSON pointer.
	parts map[string]*jsonschema.Schema
}

const location = "https://hcpmesh.invalid/configuration.json" // identifies the document; nothing is fetched

// Parse parses and compiles a schema.
func Parse(text []byte) (*Schema, error) {
	var file struct {
		Property
		Defs map[string]*Property `json:"$defs"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	s := &Schema{root: &file.Property, defs: file.Defs, compiler: jsonschema.NewCompiler(), parts: map[string]*jsonschema.Schema{}}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := s.compiler.AddResource(location, document); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	if s.compiled, err = s.compiler.Compile(location); err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	if err := s.complete("", s.root); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	for name, p := range s.defs {
		if err := s.complete("/$defs/"+name, p); err != nil {
			return nil, fmt.Errorf("reading the schema: %w", err)
		}
	}
	return s, nil
}

// complete sets the pointers of a schema and its children, and parses the schema of additional keys.
func (s *Schema) complete(pointer string, p *Property) error {
	p.pointer = pointer
	for name, child := range p.Properties {
		if err := s.complete(pointer+"/properties/"+name, child); err != nil {
			return err
		}
	}
	if p.Items != nil {
		if err := s.complete(pointer+"/items", p.Items); err != nil {
			return err
		}
	}
	if len(p.AdditionalProperties) == 0 || p.AdditionalProperties[0] != '{' {
		return nil
	}
	p.values = &Property{}
	if err := json.Unmarshal(p.AdditionalProperties, p.values); err != nil {
		return fmt.Errorf("%s/additionalProperties: %w", pointer, err)
	}
	return s.complete(pointer+"/additionalProperties", p.values)
}

// expand returns a schema with the keywords of the definition that it refers to. Its own annotations take precedence.
func (s *Schema) expand(p *Property) *Property {
	if p.Ref == "" {
		return p
	}
	definition := s.defs[strings.TrimPrefix(p.Ref, "#/$defs/")]
	if definition == nil {
		return p
	}
	expanded := *s.expand(definition)
	expanded.Ref, expanded.pointer = p.Ref, p.pointer
	if p.Description != "" {
		expanded.Description = p.Description
	}
	expanded.Layer, expanded.Computed, expanded.Unique = p.Layer, p.Computed, p.Unique
	expanded.DataStore, expanded.Deploy = p.DataStore, p.Deploy || expanded.Deploy
	expanded.Configures, expanded.UsedBy = append(slices.Clone(expanded.Configures), p.Configures...), append(slices.Clone(expanded.UsedBy), p.UsedBy...)
	return &expanded
}

// child returns the schema of a key or an item within p, or nil if the key is unknown. A key without x-layer, or without x-configures
// and x-used-by, has those of the map that contains it.
func (s *Schema) child(p *Property, name string) *Property {
	var found *Property
	switch {
	case p.Type == "array":
		found = p.Items
	case p.Properties[name] != nil:
		found = p.Properties[name]
	default:
		found = p.values
	}
	if found == nil {
		return nil
	}
	expanded := *s.expand(found)
	if expanded.Layer == "" {
		expanded.Layer = p.Layer
	}
	if len(expanded.UsedBy) == 0 && len(expanded.Configures) == 0 {
		expanded.UsedBy, expanded.Configures = p.UsedBy, p.Configures
	}
	expanded.Configures = ofPrograms(expanded.Configures, p.Configures)
	return &expanded
}

// ofPrograms returns what a key configures. A definition that several programs share names only flags; programs are those of the map
// that refers to the definition.
func ofPrograms(configures, programs []string) []string {
	var full []string
	for _, name := range configures {
		if !strings.HasPrefix(name, "--") {
			full = append(full, name)
			continue
		}
		for _, program := range programs {
			full = append(full, program+" "+name)
		}
	}
	return full
}

// top returns the schema of the whole configuration.
func (s *Schema) top() *Property {
	root := *s.root
	root.Layer = layer.Levels[layer.Region]
	return &root
}

// Lookup returns the schema of a key, or nil if it is unknown.
func (s *Schema) Lookup(path ...string) *Property {
	p := s.top()
	for _, step := range path {
		if p = s.child(p, step); p == nil {
			return nil
		}
	}
	return p
}

// Walk calls visit with each key of the schema and its path, in alphabetical order, without the content of computed keys. A map with arbitrary keys has the key <name>, and
// the items of a list have the key [].
func (s *Schema) Walk(visit func(path []string, p *Property)) { s.walk(nil, s.top(), visit) }

func (s *Schema) walk(path []string, p *Property, visit func([]string, *Property)) {
	if len(path) > 0 {
		visit(path, p)
	}
	if p.Computed {
		return
	}
	names := slices.Sorted(maps.Keys(p.Properties))
	if p.values != nil {
		names = append(names, "<name>")
	}
	if p.Type == "array" && s.expand(p.Items).Type == "object" {
		names = append(names, "[]")
	}
	for _, name := range names {
		s.walk(append(path[:len(path):len(path)], name), s.child(p, name), visit)
	}
}

// part returns the compiled schema of one key.
func (s *Schema) part(p *Property) (*jsonschema.Schema, error) {
	if known := s.parts[p.pointer]; known != nil {
		return known, nil
	}
	compiled, err := s.compiler.Compile(location + "#" + p.pointer)
	if err == nil {
		s.parts[p.pointer] = compiled
	}
	return compiled, err
}

// Limits describes the values that a scalar can have, for documents.
func (p *Property) Limits() string {
	switch {
	case len(p.Enum) > 0:
		var values []string
		for _, value := range p.Enum {
			values = append(values, fmt.Sprint(value))
		}
		return strings.Join(values, ", ")
	case p.Minimum != nil && p.Maximum != nil:
		return number(*p.Minimum) + " to " + number(*p.Maximum)
	case p.Minimum != nil:
		return "at least " + number(*p.Minimum)
	}
	return ""
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Top returns the names of the top-level keys, in order.
func (s *Schema) Top() []string { return slices.Sorted(maps.Keys(s.root.Properties)) }
