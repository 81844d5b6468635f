package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
)

// difference is one structural difference between two documents.
type difference struct {
	// where is the path from the root of the document.
	where string
	// published and ours are JSON, or absent.
	published, ours string
}

const absent = "absent"

func (d difference) String() string {
	return fmt.Sprintf("%s\n\tpublished: %s\n\tours:      %s", d.where, d.published, d.ours)
}

// document is a parsed OpenAPI document that resolves references to the common types.
type document struct {
	root        map[string]any
	commonTypes fs.FS
}

func readDocument(t *testing.T, name string) document {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return parseDocument(t, string(content))
}

func parseDocument(t *testing.T, content string) document {
	t.Helper()
	d := document{commonTypes: Files()}
	if err := json.Unmarshal([]byte(content), &d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// prose lists the members without structural meaning. A member of a map of names, for example a property called
// description, is never prose.
var prose = map[string]bool{
	"description": true, "title": true, "summary": true, "info": true, "externalDocs": true, "x-ms-examples": true, "x-ms-summary": true,
}

// nameMaps lists the members that map names of the contract to values.
var nameMaps = map[string]bool{
	"paths": true, "definitions": true, "properties": true, "responses": true, "headers": true, "securityDefinitions": true, "scopes": true,
}

// sets lists the arrays whose order has no meaning.
var sets = map[string]bool{
	"required": true, "enum": true, "x-ms-mutability": true, "x-ms-identifiers": true, "tags": true, "schemes": true,
	"consumes": true, "produces": true, "parameters": true, "allOf": true, "values": true, "allowedResources": true, "scopes": true,
}

// compare returns the differences between published and ours. It ignores order, prose, the case of paths, and whether a
// value is inline or referenced.
func compare(published, ours document) []difference {
	c := comparison{published: published, ours: ours}
	c.value("", "", published.root, ours.root)
	sort.Slice(c.found, func(i, j int) bool { return c.found[i].where < c.found[j].where })
	return c.found
}

type comparison struct {
	published, ours document
	found           []difference
}

// value compares two values of the member called member at path where.
func (c *comparison) value(where, member string, published, ours any) {
	published, ours = c.sameReference(published, ours)
	publishedMap, publishedIsMap := members(c.published, member, published)
	oursMap, oursIsMap := members(c.ours, member, ours)
	if !publishedIsMap || !oursIsMap {
		if text(published) != text(ours) {
			c.found = append(c.found, difference{where, text(published), text(ours)})
		}
		return
	}
	var names []string
	for name := range publishedMap {
		names = append(names, name)
	}
	for name := range oursMap {
		if _, ok := publishedMap[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		at := strings.TrimPrefix(where+" > "+name, " > ")
		published, inPublished := publishedMap[name]
		ours, inOurs := oursMap[name]
		switch {
		case !nameMaps[member] && prose[name]:
		case !inOurs:
			c.found = append(c.found, difference{at, text(published), absent})
		case !inPublished:
			c.found = append(c.found, difference{at, absent, text(ours)})
		case nameMaps[member]:
			c.value(at, "", published, ours)
		default:
			c.value(at, name, published, ours)
		}
	}
}

// members returns the members of an object, or the elements of a set by their identity.
func members(d document, member string, value any) (map[string]any, bool) {
	switch value := value.(type) {
	case map[string]any:
		if member != "paths" {
			return value, true
		}
		lower := make(map[string]any, len(value)) // ARM paths are case-insensitive
		for name, described := range value {
			lower[strings.ToLower(name)] = described
		}
		return lower, true
	case []any:
		if !sets[member] {
			return nil, false
		}
		elements := make(map[string]any, len(value))
		for _, element := range value {
			elements[identity(d, element)] = element
		}
		return elements, true
	}
	return nil, false
}

// identity returns the key that distinguishes an element of a set from the others.
func identity(d document, element any) string {
	object, ok := element.(map[string]any)
	if !ok {
		return text(element)
	}
	if parameter := d.resolve(object); parameter["in"] != nil {
		return fmt.Sprintf("%v %v", parameter["in"], parameter["name"])
	}
	for _, key := range []string{"$ref", "value", "name", "type"} {
		if key == "$ref" && object[key] != nil {
			return referenceName(object[key].(string))
		}
		if object[key] != nil {
			return text(object[key])
		}
	}
	return text(element)
}

// sameReference normalizes references to the common types on both sides. If only one side has a reference, it is resolved.
func (c *comparison) sameReference(published, ours any) (any, any) {
	publishedMap, publishedOK := published.(map[string]any)
	oursMap, oursOK := ours.(map[string]any)
	if !publishedOK || !oursOK {
		return published, ours
	}
	publishedRef, publishedRefers := publishedMap["$ref"].(string)
	oursRef, oursRefers := oursMap["$ref"].(string)
	switch {
	case publishedRefers && oursRefers:
		return withReference(publishedMap, referenceName(publishedRef)), withReference(oursMap, referenceName(oursRef))
	case publishedRefers:
		return c.published.resolve(publishedMap), ours
	case oursRefers:
		return published, c.ours.resolve(oursMap)
	}
	return published, ours
}

func withReference(object map[string]any, name string) map[string]any {
	written := make(map[string]any, len(object))
	for key, value := range object {
		written[key] = value
	}
	written["$ref"] = name
	return written
}

// referenceName returns a reference without the folders before common-types, which differ between repositories.
func referenceName(reference string) string {
	file, pointer, _ := strings.Cut(reference, "#")
	if file == "" {
		return reference
	}
	return "common-types/" + path.Join(path.Base(path.Dir(file)), path.Base(file)) + "#" + pointer
}

// resolve returns the object that a reference points to, merged with the members beside the reference.
func (d document) resolve(object map[string]any) map[string]any {
	for range 16 { // the bound ends circular references
		reference, ok := object["$ref"].(string)
		if !ok {
			return object
		}
		root := d.root
		name := referenceName(reference)
		file, pointer, _ := strings.Cut(name, "#")
		if file != "" {
			content, err := fs.ReadFile(d.commonTypes, file)
			if err != nil {
				return object
			}
			// Local references of a common type point into its own document.
			content = bytes.ReplaceAll(content, []byte(`"$ref": "#/`), []byte(`"$ref": "`+file+`#/`))
			root = nil
			if err := json.Unmarshal(content, &root); err != nil {
				return object
			}
		}
		var at any = root
		for _, step := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
			inner, ok := at.(map[string]any)
			if !ok {
				return object
			}
			at = inner[step]
		}
		target, ok := at.(map[string]any)
		if !ok {
			return object
		}
		resolved := make(map[string]any, len(target)+len(object))
		for key, value := range target {
			resolved[key] = value
		}
		for key, value := range object {
			if key != "$ref" {
				resolved[key] = value
			}
		}
		object = resolved
	}
	return object
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}

// exception is an intended difference, with the reason.
type exception struct {
	// versions lists the api-versions with the difference.
	versions        []string
	where           string
	published, ours string
	why             string
}

// unintended returns the differences of a version that no exception covers, and the exceptions for the version that match no
// difference.
func unintended(version string, found []difference, exceptions []exception) (differences []difference, unused []exception) {
	covered := map[int]bool{}
	for _, one := range found {
		at := slices.IndexFunc(exceptions, func(e exception) bool {
			return slices.Contains(e.versions, version) && e.where == one.where && e.published == one.published && e.ours == one.ours
		})
		if at < 0 {
			differences = append(differences, one)
			continue
		}
		covered[at] = true
	}
	for i, e := range exceptions {
		if slices.Contains(e.versions, version) && !covered[i] {
			unused = append(unused, e)
		}
	}
	return differences, unused
}
