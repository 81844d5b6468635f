package emulator_test

import (
	"encoding/xml"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// TestHashesEqualService compares effective partition keys with baselines of the service, which the client contains as
// test data.
func TestHashesEqualService(t *testing.T) {
	dir := goCommand(t, ".", "list", "-m", "-f", "{{.Dir}}", module)
	files, err := filepath.Glob(filepath.Join(dir, "internal", "epk", "testdata", "*.xml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no baselines in %s: %v", dir, err)
	}
	compared := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var baseline struct {
			Results []struct {
				Input  struct{ Description, PartitionKeyValue string }
				Output struct{ PartitionKeyHashV1, PartitionKeyHashV2 string }
			} `xml:"Result"`
		}
		if err := xml.Unmarshal(raw, &baseline); err != nil {
			t.Fatal(err)
		}
		hierarchical := strings.Contains(file, "Lists")
		for _, r := range baseline.Results {
			key := baselineKey(t, r.Input.PartitionKeyValue)
			v1, v2 := partition.Definition{Kind: partition.KindHash, Version: 1}, partition.Definition{Kind: partition.KindHash, Version: 2}
			if hierarchical {
				v2.Kind = partition.KindMultiHash
			}
			if got := v1.EPK(key); got != r.Output.PartitionKeyHashV1 {
				t.Errorf("%s, version 1: %s, want %s", r.Input.Description, got, r.Output.PartitionKeyHashV1)
			}
			if got, want := v2.EPK(key), masked(r.Output.PartitionKeyHashV2); got != want {
				t.Errorf("%s, version 2: %s, want %s", r.Input.Description, got, want)
			}
			compared++
		}
	}
	t.Logf("compared %d keys", compared)
}

// baselineKey parses a value of the baseline: JSON, or a name of a value without a JSON form.
func baselineKey(t *testing.T, text string) partition.Key {
	t.Helper()
	number := func(n float64) partition.Key { return partition.Key{{Kind: document.Number, Num: n}} }
	switch text {
	case "UNDEFINED":
		return partition.Key{{}}
	case `"NaN"`:
		return number(math.Float64frombits(0xFFF8000000000000))
	case `"Infinity"`:
		return number(math.Inf(1))
	case `"-Infinity"`:
		return number(math.Inf(-1))
	}
	v, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if v.Kind == document.Array {
		return partition.Key(v.Arr)
	}
	return partition.Key{v}
}

// masked clears the two top bits of every 16 bytes, as routing does. The baselines are unmasked hashes.
func masked(hash string) string {
	var b strings.Builder
	for i := 0; i+32 <= len(hash); i += 32 {
		b.WriteByte("0123"[strings.IndexByte("0123456789ABCDEF", hash[i])&3])
		b.WriteString(hash[i+1 : i+32])
	}
	return b.String()
}
