package skew

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var capture = flag.Bool("capture", false, "capture the data of the newest release; `make capture` uses it")

// TestCapture runs a region with the programs of the newest release, creates clusters in it, stops it while operations are in progress and
// saves its data. It is not a test: it writes the files of the other tests.
func TestCapture(t *testing.T) {
	if !*capture {
		t.Skip("writes test data; run `make capture`")
	}
	ctx := t.Context()
	r := newRegion(t)
	r.build(t, ctx)
	r.start(t, ctx)
	c := newCustomer(t, ctx, r.Endpoints())
	createFleet(t, ctx, c, r)
	seen := must.Get(read(ctx, c, settledResources(c)))(t)
	r.Close()

	into := filepath.Join(r.config.SourceDir, filepath.FromSlash(r.release.Data))
	must.Do(t, SaveSnapshot(ctx, r.config, into))
	text := must.Get(json.MarshalIndent(seen, "", " "))(t)
	must.Do(t, os.WriteFile(filepath.Join(into, resourcesFile), append(text, '\n'), 0o644))
}
