package openapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// intended are the places where our documents are meant to differ from the published ones.
var intended = []exception{
	{
		versions: Versions(), where: "definitions > ApiProfile > required", published: `["url"]`, ours: absent,
		why: "the address appears as the cluster comes up, and visibility is shown before: a client that checks answers against the document would refuse that of every create",
	},
	{
		versions: Versions(), where: `definitions > PlatformProfile > required > "issuerUrl"`, published: `"issuerUrl"`, ours: absent,
		why: "the issuer appears as the cluster comes up, and the rest of the platform is shown before",
	},
}

// TestStructureIsThePublishedOne compares our documents with those that ARM publishes, wherever those are at hand: beside
// the repository in shared/contract, or in HCPMESH_PUBLISHED_CONTRACT.
func TestStructureIsThePublishedOne(t *testing.T) {
	folder := os.Getenv("HCPMESH_PUBLISHED_CONTRACT")
	if folder == "" {
		folder = filepath.Join(repository(t), "..", "shared", "contract")
		if _, err := os.Stat(folder); err != nil {
			t.Skipf("the published documents are not at hand (HCPMESH_PUBLISHED_CONTRACT names their folder): %v", err)
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
			t.Errorf("%s is not among the published documents of %s", version, folder)
			continue
		}
		t.Run(version, func(t *testing.T) {
			found := compare(readDocument(t, published[version]), readDocument(t, filepath.Join(version, "openapi.json")))
			differences, idle := unintended(version, found, intended)
			for _, one := range differences {
				t.Errorf("%v", one)
			}
			for _, one := range idle {
				t.Errorf("%s is said to differ, and does not: take the entry out", one.where)
			}
			t.Logf("%d differences, %d of them intended", len(found), len(found)-len(differences))
		})
		delete(published, version)
	}
	for version := range published {
		t.Errorf("%s is published, and we have no document of it", version)
	}
}

// repository is the folder of the checkout that this test is in; a linked worktree is a checkout of its own.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if pointer, err := os.ReadFile(filepath.Join(root, ".git")); err == nil { // of a worktree: the repository it belongs to
		if gitDir, ok := strings.CutPrefix(strings.TrimSpace(string(pointer)), "gitdir: "); ok {
			return filepath.Dir(filepath.Dir(filepath.Dir(gitDir))) // ROOT/.git/worktrees/NAME
		}
	}
	return root
}

// base is a document that has each kind of thing that the contract has.
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

func TestComparerSeesTheStructure(t *testing.T) {
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
		"common type":     {reason: "it means what its document says", old: "ApiVersionParameter", new: "LocationParameter", where: put + " > parameters > path location"},
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
		"required property":     {reason: "clients ask for it", old: `["size", "mode"]`, new: `["size"]`, where: `definitions > Thing > required > "mode"`, published: `"mode"`, ours: absent},
		"read-only":             {reason: "clients do not send it", old: `"readOnly": true`, new: `"readOnly": false`, where: thing + " > mode > readOnly"},
		"mutability":            {reason: "tools know from it when a change means a new resource", old: `["read", "create"]`, new: `["read", "create", "update"]`, where: thing + ` > description > x-ms-mutability > "update"`},
		"identifiers":           {reason: "tools compare arrays by them", old: `["a", "b"]`, new: `["a"]`, where: thing + ` > items > x-ms-identifiers > "b"`},
		"reference for a value": {reason: "what is referred to is not what stands there", old: `"items": {"type": "string"}`, new: `"items": {"$ref": "#/definitions/Mode"}`, where: thing + " > items > items > enum"},
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
			t.Errorf("no difference at %s was found: %s", test.where, test.reason)
		})
	}
}

// TestComparerSeesEveryPart takes each member and each element out of the document in turn, and puts another value in each
// value's place.
func TestComparerSeesEveryPart(t *testing.T) {
	original := parseDocument(t, base)
	changed := parseDocument(t, base)
	parts := 0
	var visit func(where, member string, value any)
	seen := func(where string) {
		parts++
		if len(compare(original, changed)) == 0 {
			t.Errorf("a change at %s was not found", where)
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
		t.Fatalf("after %d changes the document is not what it was: %v", parts, found)
	}
}

func TestComparerIgnoresWhatIsNoStructure(t *testing.T) {
	for name, test := range map[string]struct{ reason, old, new string }{
		"prose":                {"descriptions are each author's own", `"description": "words"`, `"description": "other words"`},
		"title":                {"so is the title", "one title", "another title"},
		"case of paths":        {"ARM matches them without regard to it", "/things/{name}", "/Things/{Name}"},
		"order of required":    {"it is a set", `["size", "mode"]`, `["mode", "size"]`},
		"order of enum":        {"it is a set", `["A", "B"]`, `["B", "A"]`},
		"place of common type": {"repositories keep them in different folders", "../common-types/v6/types.json", "../../../../common-types/resource-management/v6/types.json"},
		"common type written out": {"a reference means what it refers to", `{"$ref": "../common-types/v6/types.json#/parameters/ApiVersionParameter"}`,
			`{"name": "api-version", "in": "query", "required": true, "type": "string", "minLength": 1}`},
		"own type written out": {"a reference means what it refers to", `{"$ref": "#/definitions/Mode", "readOnly": true}`,
			`{"readOnly": true, "type": "string", "enum": ["A", "B"], "x-ms-enum": {"name": "Mode", "modelAsString": true, "values": [{"name": "A", "value": "A"}, {"name": "B", "value": "B"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(base, test.old, test.new, 1)
			if changed == base {
				t.Fatalf("%q is not in the document", test.old)
			}
			for _, found := range compare(parseDocument(t, base), parseDocument(t, changed)) {
				t.Errorf("%s, but there is a difference: %v", test.reason, found)
			}
		})
	}
}

func TestExceptionsCoverExactlyWhatTheySay(t *testing.T) {
	const where, version = "definitions > Thing > properties > size > maximum", "2026-09-01-preview"
	found := []difference{{where, "9", "8"}}
	entry := exception{versions: []string{version}, where: where, published: "9", ours: "8", why: "a reason"}
	for name, test := range map[string]struct {
		reason      string
		found       []difference
		entry       exception
		differences int
		idle        int
	}{
		"covered":         {reason: "an intended difference is none", found: found, entry: entry},
		"nothing differs": {reason: "an entry that matches nothing is out of date", entry: entry, idle: 1},
		"another value":   {reason: "the entry is for the value that it was written for", found: []difference{{where, "9", "7"}}, entry: entry, differences: 1, idle: 1},
		"another version": {reason: "the entry is for its versions", found: found, entry: exception{versions: []string{"2024-06-10-preview"}, where: where, published: "9", ours: "8"}, differences: 1},
	} {
		t.Run(name, func(t *testing.T) {
			differences, idle := unintended(version, test.found, []exception{test.entry})
			if got, want := []int{len(differences), len(idle)}, []int{test.differences, test.idle}; !cmp.Equal(got, want) {
				t.Errorf("%s: %d differences and %d idle entries, want %v", test.reason, got[0], got[1], want)
			}
		})
	}
}
