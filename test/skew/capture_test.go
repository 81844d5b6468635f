package skew

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
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
	seen, err := read(ctx, c, settledResources(c))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()

	into := filepath.Join(r.config.SourceDir, filepath.FromSlash(r.release.Data))
	if err := SaveSnapshot(ctx, r.config, into); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(seen, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(into, resourcesFile), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
