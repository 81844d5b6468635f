package assemble_test

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/assemble"
)

func TestBaseFiles(t *testing.T) {
	goroot := must.Get(exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output())(t)
	zones := must.Get(os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "lib/time/zoneinfo.zip")))(t)
	files := must.Get(assemble.BaseFiles(zones))(t)
	texts := map[string][]byte{}
	for _, file := range files {
		if file.Mode != 0o644 {
			t.Errorf("%s has the mode %o", file.Path, file.Mode)
		}
		texts[file.Path] = file.Text
	}
	certificates := string(texts[assemble.CertificatesFile])
	if n := strings.Count(certificates, "BEGIN CERTIFICATE"); n < 80 || !x509.NewCertPool().AppendCertsFromPEM([]byte(certificates)) {
		t.Errorf("%d certificate authorities", n)
	}
	if _, err := time.LoadLocationFromTZData("Pacific/Auckland", texts["usr/share/zoneinfo/Pacific/Auckland"]); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(texts["etc/passwd"]), "nonroot:x:65532:65532:") || !strings.Contains(string(texts["etc/group"]), "nonroot:x:65532:") {
		t.Errorf("%s%s", texts["etc/passwd"], texts["etc/group"])
	}
	if _, err := assemble.BaseFiles([]byte("not a zip file")); err == nil {
		t.Error("wrong time zones are accepted")
	}
}
