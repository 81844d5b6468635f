package command_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/command"
)

func TestWrongArgumentsAreRefused(t *testing.T) {
	built := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(built, "images.json"), []byte(`{"images": {}}`), 0o644))
	for _, c := range []struct{ arguments, want string }{
		{"", "want a command"},
		{"deploy", `unknown command "deploy"`},
		{"build", "-into: is missing"},
		{"build -into x -other", "flag provided but not defined: -other"},
		{"build -into x unknown", `no image "unknown"`},
		{"push -registry r.example", "-from: is missing"},
		{"push -from " + built, "-registry: is missing"},
		{"push -from missing -registry r.example", "images.json"},
		{"push -from " + built + " -registry http://r.example", "-registry"},
		{"push -from " + built + " -registry r.example -plain-http -credentials f", "-plain-http: excludes"},
		{"push -from " + built + " -registry r.example -ca-file missing", "-ca-file"},
		{"push -from " + built + " -registry r.example -credentials missing", "-credentials"},
		{"push -from " + built + " -registry r.example unknown", "unknown"},
	} {
		var out bytes.Buffer
		if err := command.Run(t.Context(), ".", strings.Fields(c.arguments), &out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.arguments, err, c.want)
		}
	}
	var out bytes.Buffer
	if err := command.Run(t.Context(), ".", []string{"help"}, &out); err != nil || !strings.Contains(out.String(), "images build") {
		t.Errorf("%v: %s", err, out.String())
	}
}
