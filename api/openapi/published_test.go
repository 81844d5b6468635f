package openapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// intended lists the intended differences between our documents and the published ones.
var intended = []exception{
	{
		versions: Versions(), where: "definitions > ApiProfile > required", published: `["url"]`, ours: absent,
		why: "the URL is absent until the API server has an endpoint, but visibility is always shown: a client that validates responses would reject the response of every create",
	},
	{
		versions: Versions(), where: `definitions > PlatformProfile > required > "issuerUrl"`, published: `"issuerUrl"`, ours: absent,
		why: "the issuer is absent until it exists, but the rest of the platform profile is always shown",
	},
	{
		versions: []string{"2026-06-30-preview", "2026-09-01-preview"}, where: `definitions > ConditionType > enum > "LogsDelivered"`, published: absent, ours: `"LogsDelivered"`,
		why: "customers see whether their logs arrive; the enumeration is open to new values",
	},
	{
		versions: []string{"2026-06-30-preview", "2026-09-01-preview"}, where: `definitions > ConditionType > x-ms-enum > values > "LogsDelivered"`, published: absent,
		ours: `{"description":"The logs that the diagnostic settings of a cluster select arrive at their destinations.","name":"LogsDelivered","value":"LogsDelivered"}`,
		why:  "as in the enumeration",
	},
}

// TestStructureMatchesPublished compares our documents with the published ones. It reads those from the folder
// HCPMESH_PUBLISHED_CONTRACT, or from shared/contract beside the repository, and skips if neither exists.
func TestStructureMatchesPublished(t *testing.T) {
	folder := os.Getenv("HCPMESH_PUBLISHED_CONTRACT")
	if folder == "" {
		folder = filepath.Join(repository(t), "..", "shared", "contract")
		if _, err := os.Stat(folder); err != nil {
			t.Skipf("published documents not found (set HCPMESH_PUBLISHED_CONTRACT to their folder): %v", err)
		}
	}
	published := map[string]string{}
	names, err := filepath.Glob(filepath.Join(folder, "*.openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		document := readDocument(t, name)
		version, _ := document.root["info"].(map[string]any)["version"].(string)
		published[version] = name
	}
	for _, version := range Versions() {
		if published[version] == "" {
			t.Errorf("%s: no published document in %s", version, folder)
			continue
		}
		t.Run(version, func(t *testing.T) {
			found := compare(readDocument(t, published[version]), readDocument(t, filepath.Join(version, "openapi.json")))
			differences, unused := unintended(version, found, intended)
			for _, one := range differences {
				t.Errorf("%v", one)
			}
			for _, one := range unused {
				t.Errorf("%s: exception matches no difference: remove it", one.where)
			}
			t.Logf("%d differences, %d of them intended", len(found), len(found)-len(differences))
		})
		delete(published, version)
	}
	for version := range published {
		t.Errorf("%s: published, but the repository has no document", version)
	}
}

// repository returns the root of the repository, also from a linked worktree.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if pointer, err := os.ReadFile(filepath.Join(root, ".git")); err == nil { // a linked worktree
		if gitDir, ok := strings.CutPrefix(strings.TrimSpace(string(pointer)), "gitdir: "); ok {
			return filepath.Dir(filepath.Dir(filepath.Dir(gitDir))) // ROOT/.git/worktrees/NAME
		}
	}
	return root
}

// base is a document with every kind of element that the contract uses.
const base = `{
  "swagger": "2.0",
  "info": {"title": "one title", "version": "2026-09-01-preview"},
  "paths": {
    "/subscriptions/{subscriptionId}/things/{name}": {
      "put": {
        "operationId": "Things_Put",
        "description": "words",
        "parameters": [
          {"$ref": "../common-types/v6/types.json#/parameters/ApiVersionParameter"},
          {"name": "name", "in": "path", "required": true, "type": "string", "pattern": "^a$"},
          {"name": "resource", "in": "body", "required": true, "schema": {"$ref": "#/definitions/Thing"}}
        ],
        "responses": {
          "200": {"description": "words", "schema": {"$ref": "#/definitions/Thing"}},
          "201": {"headers": {"Retry-After": {"type": "integer", "format": "int32"}}}
        },
        "x-ms-long-running-operation": true,
        "x-ms-long-running-operation-options": {"final-state-via": "location"},
        "x-ms-pageable": {"nextLinkName": "nextLink"}
      }
    }
  },
  "definitions": {
    "Thing": {
      "type": "object",
      "properties": {
        "description": {"type": "string", "minLength": 1, "x-ms-mutability": ["read", "create"]},
        "size": {"type": "integer", "format": "int32", "default": 1, "minimum": 0, "maximum": 9},
        "mode": {"$ref": "#/definitions/Mode", "readOnly": true},
        "items": {"type": "array", "maxItems": 3, "items": {"type": "string"}, "x-ms-identifiers": ["a", "b"]},
        "secret": {"type": "string", "format": "password", "x-ms-secret": true}
      },
      "required": ["size", "mode"]
    },
    "Mode": {
      "type": "string",
      "enum": ["A", "B"],
      "x-ms-enum": {"name": "Mode", "modelAsString": true, "values": [{"name": "A", "value": "A", "description": "words"}, {"name": "B", "value": "B"}]}
    }
  }
}`

func TestCompareFindsStructuralDifferences(t *testing.T) {
	const put = "paths > /subscriptions/{subscriptionid}/things/{name} > put"
	const thing = "definitions > Thing > properties"
	for name, test := range map[string]struct {
		reason    string
		old, new  string
		where     string
		published string
		ours      string
	}{
		"path":           {reason: "another path is another API", old: "/things/{name}", new: "/thing/{name}", where: "paths > /subscriptions/{subscriptionid}/thing/{name}"},
		"operation id":   {reason: "SDKs name their methods by it", old: "Things_Put", new: "Things_Set", where: put + " > operationId"},
		"parameter name": {reason: "the body's name is a name in SDKs", old: `"name": "resource"`, new: `"name": "body"`, where: put + " > parameters > body body"},
		"pattern":        {reason: "clients check it", old: "^a$", new: "^b$", where: put + " > parameters > path name > pattern"},
		"required parameter": {reason: "a client may leave out what is not required", old: `"in": "path", "required": true`, new: `"in": "path", "required": false`,
			where: put + " > parameters > path name > required", published: "true", ours: "false"},
		"status code":     {reason: "clients act on it", old: `"201"`, new: `"202"`, where: put + " > responses > 201"},
		"response schema": {reason: "clients decode with it", old: `"schema": {"$ref": "#/definitions/Thing"}},`, new: `"schema": {"$ref": "#/definitions/Mode"}},`, where: put + " > responses > 200 > schema > $ref"},
		"header":          {reason: "clients read it", old: `"Retry-After"`, new: `"Location"`, where: put + " > responses > 201 > headers > Location"},
		"final state":     {reason: "pollers follow it", old: `"location"`, new: `"azure-async-operation"`, where: put + " > x-ms-long-running-operation-options > final-state-via"},
		"long-running":    {reason: "SDKs make a poller of it", old: `"x-ms-long-running-operation": true,`, new: ``, where: put + " > x-ms-long-running-operation", published: "true", ours: absent},
		"pageable":        {reason: "SDKs make a pager of it", old: `"nextLinkName": "nextLink"`, new: `"nextLinkName": "next"`, where: put + " > x-ms-pageable > nextLinkName"},
		"common type":     {reason: "each common type has its own meaning", old: "ApiVersionParameter", new: "LocationParameter", where: put + " > parameters > path location"},
		"schema name":     {reason: "SDKs name their types by it", old: `"Mode": {`, new: `"Manner": {`, where: "definitions > Manner"},
		"property called like prose": {reason: "description is a property here", old: `"description": {"type": "string", "minLength": 1`, new: `"label": {"type": "string", "minLength": 1`,
			where: thing + " > description"},
		"type":                  {reason: "clients decode with it", old: `"items": {"type": "string"}`, new: `"items": {"type": "integer"}`, where: thing + " > items > items > type"},
		"format":                {reason: "clients decode with it", old: `"format": "password"`, new: `"format": "uri"`, where: thing + " > secret > format"},
		"secret":                {reason: "tools hide it", old: `"x-ms-secret": true`, new: `"x-ms-secret": false`, where: thing + " > secret > x-ms-secret"},
		"enum value":            {reason: "a value that only one side has", old: `"enum": ["A", "B"]`, new: `"enum": ["A", "B", "C"]`, where: `definitions > Mode > enum > "C"`, published: absent, ours: `"C"`},
		"enum name":             {reason: "SDKs name their types by it", old: `"name": "Mode", "modelAsString"`, new: `"name": "Modus", "modelAsString"`, where: "definitions > Mode > x-ms-enum > name"},
		"enum extensible":       {reason: "a closed enumeration breaks old clients", old: `"modelAsString": true`, new: `"modelAsString": false`, where: "definitions > Mode > x-ms-enum > modelAsString"},
		"enum member name":      {reason: "SDKs name their constants by it", old: `{"name": "B"`, new: `{"name": "Bee"`, where: `definitions > Mode > x-ms-enum > values > "B" > name`},
		"length":                {reason: "clients check it", old: `"minLength": 1`, new: `"minLength": 2`, where: thing + " > description > minLength"},
		"bound":                 {reason: "clients check it", old: `"maximum": 9`, new: `"maximum": 8`, where: thing + " > size > maximum"},
		"item count":            {reason: "clients check it", old: `"maxItems": 3`, new: `"maxItems": 4`, where: thing + " > items > maxItems"},
		"default":               {reason: "clients fill it in", old: `"default": 1`, new: `"default": 2`, where: thing + " > size > default"},
		"required property":     {reason: "clients require it", old: `["size", "mode"]`, new: `["size"]`, where: `definitions > Thing > required > "mode"`, published: `"mode"`, ours: absent},
		"read-only":             {reason: "clients do not send it", old: `"readOnly": true`, new: `"readOnly": false`, where: thing + " > mode > readOnly"},
		"mutability":            {reason: "tools derive from it whether a change requires a new resource", old: `["read", "create"]`, new: `["read", "create", "update"]`, where: thing + ` > description > x-ms-mutability > "update"`},
		"identifiers":           {reason: "tools compare arrays by them", old: `["a", "b"]`, new: `["a"]`, where: thing + ` > items > x-ms-identifiers > "b"`},
		"reference for a value": {reason: "the referenced value differs from the inline one", old: `"items": {"type": "string"}`, new: `"items": {"$ref": "#/definitions/Mode"}`, where: thing + " > items > items > enum"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(base, test.old, test.new, 1)
			if changed == base {
				t.Fatalf("%q is not in the document", test.old)
			}
			for _, found := range compare(parseDocument(t, base), parseDocument(t, changed)) {
				if found.where == test.where && (test.published == "" || (found.published == test.published && found.ours == test.ours)) {
					return
				}
				t.Logf("%v", found)
			}
			t.Errorf("found no difference at %s: %s", test.where, test.reason)
		})
	}
}

// TestCompareFindsEveryChange removes each member and each element of the document in turn, and replaces each value.
func TestCompareFindsEveryChange(t *testing.T) {
	original := parseDocument(t, base)
	changed := parseDocument(t, base)
	parts := 0
	var visit func(where, member string, value any)
	seen := func(where string) {
		parts++
		if len(compare(original, changed)) == 0 {
			t.Errorf("compare did not find the change at %s", where)
		}
	}
	visit = func(where, member string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				if prose[name] && !nameMaps[member] {
					continue
				}
				delete(value, name)
				seen(where + " > " + name)
				value[name] = "something else"
				seen(where + " > " + name)
				value[name] = inner
				if nameMaps[member] {
					visit(where+" > "+name, "", inner)
					continue
				}
				visit(where+" > "+name, name, inner)
			}
		case []any:
			for i, inner := range value {
				value[i] = "something else"
				seen(fmt.Sprint(where, " > ", i))
				value[i] = inner
				visit(fmt.Sprint(where, " > ", i), "", inner)
			}
		}
	}
	visit("", "", changed.root)
	if found := compare(original, changed); len(found) > 0 || parts < 100 {
		t.Fatalf("after %d changes the restored document differs: %v", parts, found)
	}
}

func TestCompareIgnoresProseAndOrder(t *testing.T) {
	for name, test := range map[string]struct{ reason, old, new string }{
		"prose":                {"descriptions have no structural meaning", `"description": "words"`, `"description": "other words"`},
		"title":                {"the title has no structural meaning", "one title", "another title"},
		"case of paths":        {"ARM paths are case-insensitive", "/things/{name}", "/Things/{Name}"},
		"order of required":    {"it is a set", `["size", "mode"]`, `["mode", "size"]`},
		"order of enum":        {"it is a set", `["A", "B"]`, `["B", "A"]`},
		"place of common type": {"repositories keep them in different folders", "../common-types/v6/types.json", "../../../../common-types/resource-management/v6/types.json"},
		"common type written out": {"a reference equals its target", `{"$ref": "../common-types/v6/types.json#/parameters/ApiVersionParameter"}`,
			`{"name": "api-version", "in": "query", "required": true, "type": "string", "minLength": 1}`},
		"own type written out": {"a reference equals its target", `{"$ref": "#/definitions/Mode", "readOnly": true}`,
			`{"readOnly": true, "type": "string", "enum": ["A", "B"], "x-ms-enum": {"name": "Mode", "modelAsString": true, "values": [{"name": "A", "value": "A"}, {"name": "B", "value": "B"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(base, test.old, test.new, 1)
			if changed == base {
				t.Fatalf("%q is not in the document", test.old)
			}
			for _, found := range compare(parseDocument(t, base), parseDocument(t, changed)) {
				t.Errorf("%s, but compare found a difference: %v", test.reason, found)
			}
		})
	}
}

func TestExceptionsMatchExactly(t *testing.T) {
	const where, version = "definitions > Thing > properties > size > maximum", "2026-09-01-preview"
	found := []difference{{where, "9", "8"}}
	entry := exception{versions: []string{version}, where: where, published: "9", ours: "8", why: "a reason"}
	for name, test := range map[string]struct {
		reason      string
		found       []difference
		entry       exception
		differences int
		unused      int
	}{
		"covered":         {reason: "an exception covers the difference", found: found, entry: entry},
		"nothing differs": {reason: "an entry without a match is out of date", entry: entry, unused: 1},
		"another value":   {reason: "an entry covers only its values", found: []difference{{where, "9", "7"}}, entry: entry, differences: 1, unused: 1},
		"another version": {reason: "an entry covers only its versions", found: found, entry: exception{versions: []string{"2024-06-10-preview"}, where: where, published: "9", ours: "8"}, differences: 1},
	} {
		t.Run(name, func(t *testing.T) {
			differences, unused := unintended(version, test.found, []exception{test.entry})
			if got, want := []int{len(differences), len(unused)}, []int{test.differences, test.unused}; !cmp.Equal(got, want) {
				t.Errorf("%s: %d differences and %d unused entries, want %v", test.reason, got[0], got[1], want)
			}
		})
	}
}
