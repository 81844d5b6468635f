package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Document returns the OpenAPI document of the routes, as indented JSON. It panics if a request or response has a type that
// schema does not support.
func Document(routes []Route) []byte {
	w := &schemaWriter{components: map[string]any{}}
	paths := map[string]map[string]any{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = w.operation(r)
	}
	failure := map[string]any{"description": "The error.", "content": jsonContent(w.schema(reflect.TypeFor[adminv1.Failure]()))}
	content := map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "hcpmesh admin", "version": "v1",
			"description": "The REST API for SREs of a region. A read requires a role that one of the caller's groups gives. A change also requires an active elevation for the class of its action; the response is an operation that is executed asynchronously.",
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
		panic(err) // maps, slices and strings
	}
	return out.Bytes()
}

// RouteTable returns the routes as a Markdown table, by their paths.
func RouteTable(routes []Route) string {
	var table strings.Builder
	table.WriteString("| route | name | role | purpose |\n|---|---|---|---|\n")
	for _, r := range slices.SortedStableFunc(slices.Values(routes), func(a, b Route) int { return strings.Compare(a.Path, b.Path) }) {
		role := string(r.Role)
		if r.WithoutClaims != "" {
			role += ", without its claims: " + r.WithoutClaims
		}
		fmt.Fprintf(&table, "| `%s %s` | `%s` | %s | %s |\n", r.Method, strings.TrimPrefix(r.Path, adminv1.Root), r.Name, role, r.Summary)
	}
	return table.String()
}

func jsonContent(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

// schemaWriter derives JSON schemas from Go types and collects those of structs as components.
type schemaWriter struct{ components map[string]any }

func (w *schemaWriter) operation(r Route) map[string]any {
	parameters := []any{}
	for _, name := range adminv1.Wildcards(r.Path) {
		parameters = append(parameters, map[string]any{"name": name, "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
	}
	for _, p := range r.Query {
		parameters = append(parameters, map[string]any{"name": p.Name, "in": "query", "description": p.Description, "schema": map[string]any{"type": p.Type}})
	}
	if r.Mutates || r.Repeatable {
		parameters = append(parameters, map[string]any{"name": adminv1.IdempotencyKey, "in": "header", "schema": map[string]any{"type": "string", "minLength": 1, "maxLength": maxKey},
			"description": "A key that the caller chose for this request. A repeated request with the same key returns the same object."})
	}
	success := map[string]any{"description": "Success."}
	if r.Status == http.StatusAccepted {
		success["description"] = "Accepted. Poll the operation for its result."
	}
	switch {
	case r.ContentType != "":
		success["content"] = map[string]any{r.ContentType: map[string]any{"schema": map[string]any{"type": "string"}}}
	case r.Response != nil:
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
