package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

var update = flag.Bool("update", false, "write the OpenAPI document again")

const documentFile = "../../openapi/admin-v1.json"

// TestTheDocumentIsOfTheRoutes checks that the committed document says what the routes are, and nothing else: every route
// with its parameters, its bodies and its role, and no path that there is not.
func TestTheDocumentIsOfTheRoutes(t *testing.T) {
	want := document(server.Routes())
	if *update {
		if err := os.WriteFile(documentFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the document is out of date; run `go test ./admin/pkg/server -run Document -update` (-want +got):\n%s", diff)
	}
}

var pathParameter = regexp.MustCompile(`\{([a-z]+)\}`)

// document makes the OpenAPI document.
func document(routes []server.Route) []byte {
	w := &schemaWriter{components: map[string]any{}}
	paths := map[string]map[string]any{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = w.operation(r)
	}
	failure := map[string]any{"description": "What was wrong.", "content": jsonContent(w.schema(reflect.TypeFor[adminv1.Failure]()))}
	content := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "hcpmesh admin", "version": "v1",
			"description": "The SREs' API of a region. Reading needs a role that one of the caller's groups gives; changing something needs an elevation to it besides, and is answered with an operation that is executed later.",
		},
		"security": []any{map[string]any{"token": []any{}}},
		"paths":    paths,
		"components": map[string]any{
			"schemas":         w.components,
			"responses":       map[string]any{"Failure": failure},
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
		},
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(content); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func jsonContent(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

// schemaWriter makes schemas of Go's types.
type schemaWriter struct{ components map[string]any }

func (w *schemaWriter) operation(r server.Route) map[string]any {
	parameters := []any{}
	for _, name := range pathParameter.FindAllStringSubmatch(r.Path, -1) {
		parameters = append(parameters, map[string]any{"name": name[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
	}
	for _, p := range r.Query {
		parameters = append(parameters, map[string]any{"name": p.Name, "in": "query", "description": p.Description, "schema": map[string]any{"type": p.Type}})
	}
	if r.Mutates {
		parameters = append(parameters, map[string]any{"name": adminv1.IdempotencyKey, "in": "header", "schema": map[string]any{"type": "string", "minLength": 1, "maxLength": 128},
			"description": "Made by the caller for this request. Sent again with it, because the answer was lost, the request is the same operation and not another one."})
	}
	success := map[string]any{"description": "Done."}
	if r.Status == 202 {
		success["description"] = "Written down; the operation says how it stands."
	}
	if r.Response != nil {
		success["content"] = jsonContent(w.schema(reflect.TypeOf(r.Response)))
	}
	operation := map[string]any{
		"operationId": r.Name, "summary": r.Summary, "parameters": parameters, "x-role": r.Role,
		"responses": map[string]any{strconv.Itoa(r.Status): success, "default": map[string]any{"$ref": "#/components/responses/Failure"}},
	}
	if r.Request != nil {
		operation["requestBody"] = map[string]any{"required": true, "content": jsonContent(w.schema(reflect.TypeOf(r.Request)))}
	}
	return operation
}

func (w *schemaWriter) schema(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	}
	if message, ok := reflect.Zero(t).Interface().(interface{ MessageName() string }); ok && t.Kind() == reflect.Struct {
		return map[string]any{"type": "object", "description": "The message " + message.MessageName() + " in protobuf's JSON form."}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.schema(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": w.schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": w.schema(t.Elem())}
	case reflect.Struct:
		name := t.Name()
		if pkg := path.Base(t.PkgPath()); pkg != "adminv1" {
			name = pkg + "." + name
		}
		if _, known := w.components[name]; !known {
			w.components[name] = nil // for a type that refers to itself
			properties, required := map[string]any{}, []string{}
			w.fields(t, properties, &required)
			w.components[name] = map[string]any{"type": "object", "properties": properties, "required": required}
		}
		return map[string]any{"$ref": "#/components/schemas/" + name}
	}
	panic("no schema for " + t.String())
}

func (w *schemaWriter) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			w.fields(field.Type, properties, required)
			continue
		}
		properties[name] = w.schema(field.Type)
		if !strings.Contains(options, "omit") && field.Type.Kind() != reflect.Map {
			*required = append(*required, name)
		}
	}
}
