package versions_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// tables returns the entries of each api-version's tables, by the name of the contract's schema.
func tables() map[string]map[string][]shape.Entry {
	all := map[string]map[string][]shape.Entry{}
	for _, api := range version.All() {
		all[api.Name] = map[string][]shape.Entry{
			"HcpOpenShiftCluster": shape.Bind[hub.Cluster, hub.ClusterStatus](api.Cluster).Entries(),
			"NodePool":            shape.Bind[hub.NodePool, hub.NodePoolStatus](api.NodePool).Entries(),
			"ExternalAuth":        shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](api.ExternalAuth).Entries(),
		}
	}
	return all
}

// property is a property of a schema.
type property struct {
	readOnly bool
	fallback string
	words    []string
}

// TestContract: a version decodes every property of the contract, or only encodes it if it is read-only, with the
// contract's enumerations and defaults. It has no other properties.
func TestContract(t *testing.T) {
	documents := openapi.Files()
	for version, schemas := range tables() {
		t.Run(version, func(t *testing.T) {
			compare(t, contract{documents}, path.Join(version, "openapi.json"), schemas)
		})
	}
}

// TestPublishedContract is TestContract with the documents that ARM publishes, if they are available.
func TestPublishedContract(t *testing.T) {
	folder := os.Getenv("HCPMESH_PUBLISHED_CONTRACT")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "..", "shared", "contract")
	}
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the published documents are not at hand (HCPMESH_PUBLISHED_CONTRACT names their folder): %v", err)
	}
	for version, schemas := range tables() {
		t.Run(version, func(t *testing.T) {
			compare(t, contract{os.DirFS(folder)}, "hcpopenshiftclusters-"+version+".openapi.json", schemas)
		})
	}
}

// contract is a folder of documents. The common types always come from this repository, because ARM does not publish
// them with its documents.
type contract struct{ files fs.FS }

func (c contract) read(t *testing.T, file string) map[string]any {
	files := c.files
	if strings.Contains(file, "common-types/") {
		files, file = openapi.Files(), path.Join("common-types", "v6", path.Base(file))
	}
	content := must.Get(fs.ReadFile(files, file))(t)
	var document map[string]any
	must.Do(t, json.Unmarshal(content, &document))
	return document
}

func compare(t *testing.T, c contract, file string, schemas map[string][]shape.Entry) {
	for name, entries := range schemas {
		want := map[string]property{}
		c.walk(t, file, "#/definitions/"+name, "", want)
		got := map[string]property{}
		for _, entry := range entries {
			if entry.Implied {
				continue
			}
			p := property{readOnly: entry.ReadOnly, fallback: entry.Default, words: slices.Sorted(slices.Values(entry.Enum))}
			got[entry.Path] = p
		}
		for path, p := range want {
			if within(path, got) {
				delete(want, path)
				continue
			}
			p, mine := normalizeExpected(path, p, got[path])
			want[path] = p
			if _, ok := got[path]; ok {
				got[path] = mine
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(property{})); diff != "" {
			t.Errorf("%s (-contract +version):\n%s", name, diff)
		}
	}
}

// within reports whether path is part of a read-only value.
func within(path string, got map[string]property) bool {
	for i, c := range path {
		if outer, ok := got[strings.TrimSuffix(path[:i], "[]")]; c == '.' && ok && outer.readOnly {
			return true
		}
	}
	return false
}

// normalizeExpected removes intended differences.
func normalizeExpected(path string, want, got property) (property, property) {
	switch path {
	case "properties.console":
		// An object with read-only fields only.
		want.readOnly = got.readOnly
	case "properties.ingress.type":
		// The service rejects Disabled.
		want.words = slices.DeleteFunc(want.words, func(word string) bool { return word == "Disabled" })
	case "identity.userAssignedIdentities[*].clientId", "identity.userAssignedIdentities[*].principalId":
		// Read-only for customers; ARM sets them in the body that it forwards.
		want.readOnly = got.readOnly
	case "properties.etcd.dataEncryption.customerManaged.encryptionType", "properties.claim.validationRules[].type":
		// As in the published service, the contract's default does not apply.
		got.fallback = want.fallback
	case "properties.version.channelGroup", "properties.claim.mappings.username.prefixPolicy":
		// The contract leaves these defaults to the service.
		got.fallback = want.fallback
	}
	if strings.HasPrefix(path, "properties.autoscaling.") {
		got.fallback = want.fallback
	}
	if want.readOnly {
		// The tables do not list the values of read-only enumerations.
		want.words, want.fallback = nil, ""
	}
	return want, got
}

// walk collects the properties of a schema.
func (c contract) walk(t *testing.T, file, ref, at string, into map[string]property) {
	target, pointer, _ := strings.Cut(ref, "#/definitions/")
	if target != "" {
		file = path.Join(path.Dir(file), target)
	}
	schema, ok := c.read(t, file)["definitions"].(map[string]any)[pointer].(map[string]any)
	if !ok {
		t.Fatalf("%s has no %s", file, pointer)
	}
	c.schema(t, file, schema, at, into)
}

func (c contract) schema(t *testing.T, file string, schema map[string]any, at string, into map[string]property) {
	for _, base := range list(schema["allOf"]) {
		c.walk(t, file, base.(map[string]any)["$ref"].(string), at, into)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, value := range properties {
		field := name
		if at != "" {
			field = at + "." + name
		}
		described := value.(map[string]any)
		p := property{readOnly: described["readOnly"] == true}
		if fallback, ok := described["default"]; ok {
			p.fallback = fmt.Sprint(fallback)
		}
		within, inner := file, described
		for inner["$ref"] != nil {
			target, pointer, _ := strings.Cut(inner["$ref"].(string), "#/definitions/")
			if target != "" {
				within = path.Join(path.Dir(within), target)
			}
			inner = c.read(t, within)["definitions"].(map[string]any)[pointer].(map[string]any)
			p.readOnly = p.readOnly || inner["readOnly"] == true
		}
		for _, word := range list(inner["enum"]) {
			p.words = append(p.words, word.(string))
		}
		slices.Sort(p.words)
		into[field] = p
		if items, ok := inner["items"].(map[string]any); ok {
			c.element(t, within, items, field+"[]", into)
			continue
		}
		if elements, ok := inner["additionalProperties"].(map[string]any); ok {
			c.element(t, within, elements, field+"[*]", into)
			continue
		}
		c.schema(t, within, inner, field, into)
	}
}

func (c contract) element(t *testing.T, file string, schema map[string]any, at string, into map[string]property) {
	if ref, ok := schema["$ref"].(string); ok {
		c.walk(t, file, ref, at, into)
		return
	}
	c.schema(t, file, schema, at, into)
}

func list(value any) []any {
	values, _ := value.([]any)
	return values
}
