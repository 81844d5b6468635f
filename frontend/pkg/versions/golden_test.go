package versions_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "update the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update to accept it:\n%s", file, diff)
	}
}

// TestTables writes the tables of every version with all properties of each field, for readers and reviews.
func TestTables(t *testing.T) {
	for version, schemas := range tables() {
		var sheet strings.Builder
		for _, name := range []string{"HcpOpenShiftCluster", "NodePool", "ExternalAuth"} {
			fmt.Fprintf(&sheet, "%s\n", name)
			for _, entry := range schemas[name] {
				line := fmt.Sprintf("  %-75s %-12s", entry.Path, entry.Type)
				if entry.ReadOnly {
					line += " read-only"
				}
				if entry.Default != "" {
					line += " =" + entry.Default
				}
				if entry.Enum != nil {
					line += " (" + strings.Join(entry.Enum, ", ") + ")"
				}
				if entry.Implied {
					line += " not on the wire"
				}
				if entry.Notes != nil {
					line += "; " + strings.Join(entry.Notes, "; ")
				}
				sheet.WriteString(strings.TrimRight(line, " ") + "\n")
			}
		}
		golden(t, version+".txt", []byte(sheet.String()))
	}
}

// TestDefaults: the result of decoding a minimal body, with the newest version's defaults for fields that the version
// does not have.
func TestDefaults(t *testing.T) {
	for _, v := range versions.All() {
		read := func(content string) *wire.Body {
			fields := must.Get(wire.ParseObject([]byte(content)))(t)
			return wire.NewBody(fields)
		}
		made := map[string]any{
			"cluster": v.DecodeCluster(read(`{}`), &hub.Cluster{}, true).Properties,
			"cluster with a key of the customer's": v.DecodeCluster(read(`{"properties":{"etcd":{"dataEncryption":{"keyManagementMode":"CustomerManaged","customerManaged":{"kms":{}}}}}}`),
				&hub.Cluster{}, true).Properties.Etcd,
			"node pool": v.DecodeNodePool(read(`{}`), &hub.NodePool{}, true).Properties,
			"external auth": v.DecodeExternalAuth(read(`{"properties":{"clients":[{}],"claim":{"mappings":{"groups":{}},"validationRules":[{}]}}}`),
				&hub.ExternalAuth{}, true).Properties,
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		must.Do(t, encoder.Encode(made))
		golden(t, v.Name+".defaults.json", text.Bytes())
	}
}
