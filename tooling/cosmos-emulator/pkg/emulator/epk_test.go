package emulator_test

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// TestHashesEqualService compares effective partition keys with baselines of the service, which the client contains as
// test data.
func TestHashesEqualService(t *testing.T) {
	dir := goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	files, err := filepath.Glob(filepath.Join(dir, "internal", "epk", "testdata", "*.Strings.xml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no baselines in %s: %v", dir, err)
	}
	compared := 0
	for _, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		var baseline struct {
			Results []struct {
				Input  struct{ Description, PartitionKeyValue string }
				Output struct{ PartitionKeyHashV2 string }
			} `xml:"Result"`
		}
		must.Do(t, xml.Unmarshal(raw, &baseline))
		for _, r := range baseline.Results {
			var key string
			must.Do(t, json.Unmarshal([]byte(r.Input.PartitionKeyValue), &key))
			// Routing clears the two top bits. The baselines are unmasked hashes.
			hash := r.Output.PartitionKeyHashV2
			want := string("0123"[strings.IndexByte("0123456789ABCDEF", hash[0])&3]) + hash[1:]
			if got := partition.Key(key).EPK(); got != want {
				t.Errorf("%s: %s, want %s", r.Input.Description, got, want)
			}
			compared++
		}
	}
	if compared == 0 {
		t.Fatal("the baselines have no strings")
	}
	t.Logf("compared %d keys", compared)
}
