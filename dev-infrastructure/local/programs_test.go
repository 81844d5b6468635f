package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOtherBuildGetsItsFlags checks that a program of another release gets the flags that it has, with their values, and no other.
func TestOtherBuildGetsItsFlags(t *testing.T) {
	dir := t.TempDir()
	help := "Usage of service:\n  -enable-faults\n    \tinject faults, for example with -removed=x\n  -listen address\n    \taddress\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "service"), []byte("#!/bin/sh\n[ \"$1\" = --help ] && cat <<'E'\n"+help+"E\n"), 0o755))
	spec := supervisor.Spec{Name: "service", Program: "/checkout/service", Args: []string{"--listen=127.0.0.1:1", "--new=a=b", "--enable-faults", "--removed=x", "--list=1"}}
	got := must.Get(otherBuild(t.Context(), &spec, dir))(t)
	want := supervisor.Program{Path: filepath.Join(dir, "service"), Args: []string{"--listen=127.0.0.1:1", "--enable-faults"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := otherBuild(t.Context(), &spec, filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), filepath.Join("missing", "service")) {
		t.Errorf("a missing program: %v", err)
	}
	if _, err := otherBuild(t.Context(), &supervisor.Spec{Name: "postgres"}, dir); err == nil || !strings.Contains(err.Error(), "postgres") {
		t.Errorf("a process without a program: %v", err)
	}
}

func TestProgramsOfUnknownProcess(t *testing.T) {
	config := Config{StateDir: t.TempDir(), SourceDir: t.TempDir(), Programs: map[string]string{"fronted": "/previous"}}
	must.Do(t, config.complete())
	if err := config.validate(); err == nil || !strings.Contains(err.Error(), `programs: unknown process "fronted"`) {
		t.Errorf("got %v", err)
	}
}
