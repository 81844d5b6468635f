package supplychain_test

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

// subject is the program supplychain.
func subject(t *testing.T) supplychain.Subject {
	t.Helper()
	path := buildProgram(t, "../..", "./cmd/supplychain")
	return supplychain.Subject{Name: "supplychain", Path: path, SHA256: strings.Repeat("ab", 32), Version: "1234"}
}

func TestBillListsAllModules(t *testing.T) {
	s := subject(t)
	var texts [2]bytes.Buffer
	for i := range texts {
		bom := must.Get(supplychain.BillOf(s))(t)
		must.Do(t, supplychain.WriteBill(&texts[i], bom))
	}
	if texts[0].String() != texts[1].String() {
		t.Error("two bills of one program differ")
	}
	var read cdx.BOM
	must.Do(t, cdx.NewBOMDecoder(bytes.NewReader(texts[0].Bytes()), cdx.BOMFileFormatJSON).Decode(&read))
	info := must.Get(buildinfo.ReadFile(s.Path))(t)
	listed := map[string]cdx.Component{}
	for _, component := range *read.Components {
		listed[component.Name] = component
	}
	if len(info.Deps) == 0 || len(listed) != len(info.Deps)+2 { // and the standard library and the main module
		t.Errorf("%d components for %d modules", len(listed), len(info.Deps))
	}
	for _, module := range info.Deps {
		component, ok := listed[module.Path]
		if !ok || component.Version != module.Version || component.PackageURL == "" || component.Properties == nil || (*component.Properties)[0].Value != module.Sum {
			t.Errorf("%s: %+v", module.Path, component)
		}
		if uses := *(*read.Dependencies)[0].Dependencies; !slices.Contains(uses, component.BOMRef) {
			t.Errorf("the program does not use %s", component.BOMRef)
		}
	}
	if own := listed[info.Main.Path]; own.Version != "1234" {
		t.Errorf("the main module: %+v", own)
	}
	if got := read.Metadata.Component; got.Name != "supplychain" || (*got.Hashes)[0].Value != s.SHA256 {
		t.Errorf("the program: %+v", got)
	}
	var form struct{ BomFormat, SpecVersion, SerialNumber string }
	if err := json.Unmarshal(texts[0].Bytes(), &form); err != nil || form.BomFormat != "CycloneDX" || form.SpecVersion != "1.6" || !strings.HasPrefix(form.SerialNumber, "urn:uuid:") {
		t.Errorf("%+v, %v", form, err)
	}
}

func TestPackageURLs(t *testing.T) {
	for _, test := range []struct{ path, version, want string }{
		{"github.com/google/uuid", "v1.6.0", "pkg:golang/github.com/google/uuid@v1.6.0"},
		{"github.com/a/b", "v2.0.0+incompatible", "pkg:golang/github.com/a/b@v2.0.0%2Bincompatible"},
		{"std", "1.26.0", "pkg:golang/std@1.26.0"},
	} {
		if got := supplychain.PackageURL(test.path, test.version); got != test.want {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
}

func TestOtherFilesHaveNoBill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	must.Do(t, os.WriteFile(path, []byte("text"), 0o600))
	if bom, err := supplychain.BillOf(supplychain.Subject{Path: path}); err == nil {
		t.Errorf("a text file: %+v", bom)
	}
}
