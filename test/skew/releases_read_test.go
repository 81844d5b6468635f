package skew

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const valid = `
releases:
- {name: 2026-11-23, commit: a123456789012345678901234567890123456789, date: 2026-11-23, data: data/first}
- {name: 2026-11-30, commit: b123456789012345678901234567890123456789, date: 2026-11-30, data: data/second}
`

func TestRead(t *testing.T) {
	dir := checkoutWith(t, valid)
	releases, err := ReadReleases(dir)
	if err != nil || len(releases) != 2 || releases[0].Data != "data/first" {
		t.Fatalf("%+v, %v", releases, err)
	}
	newest, err := NewestRelease(dir)
	if err != nil || newest.Name != "2026-11-30" {
		t.Errorf("the newest release is %+v, %v", newest, err)
	}
}

func TestReadRejects(t *testing.T) {
	for reason, c := range map[string]struct{ old, new, want string }{
		"unknown field":        {"date: 2026-11-23,", "day: 2026-11-23,", `unknown field "day"`},
		"duplicate key":        {"releases:", "releases: []\nreleases:", "already set"},
		"no release":           {valid, "releases: []", "at least one release"},
		"name with a space":    {"name: 2026-11-30", "name: the second", "releases[1]: name"},
		"abbreviated commit":   {"commit: b123456789012345678901234567890123456789", "commit: b12345678901", "releases[1]: commit"},
		"no commit":            {"commit: b123456789012345678901234567890123456789, ", "", "releases[1]: commit"},
		"impossible date":      {"date: 2026-11-30", "date: 2026-11-31", "releases[1]: date"},
		"older release below":  {"date: 2026-11-30", "date: 2026-11-22", "releases[1]: date: 2026-11-22 is before"},
		"same name":            {"name: 2026-11-30", "name: 2026-11-23", `releases[1]: name: an earlier release has "2026-11-23" too`},
		"same commit":          {"commit: b", "commit: a", "releases[1]: commit: an earlier release"},
		"same data":            {"data/second", "data/first", "releases[1]: data: an earlier release"},
		"data outside":         {"data/second", "../data", "releases[1]: data"},
		"data that is missing": {"data/second", "data/third", "releases[1]: data: data/third is not a folder"},
		"data that is a file":  {"data/second", "releases.yaml", "releases[1]: data: releases.yaml is not a folder"},
	} {
		t.Run(reason, func(t *testing.T) {
			if _, err := ReadReleases(checkoutWith(t, strings.Replace(valid, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), ReleasesFile) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := ReadReleases(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func checkoutWith(t *testing.T, releases string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir, ReleasesFile, releases)
	writeFile(t, dir, "data/first/file", "")
	writeFile(t, dir, "data/second/file", "")
	return dir
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte(text), 0o644))
}

// TestBuild builds the program of an earlier commit, and checks that the checkout and the list of worktrees do not change.
func TestBuild(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	run := func(arguments ...string) string {
		t.Helper()
		return must.Get(runGit(ctx, dir, append([]string{"-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "commit.gpgsign=false"}, arguments...)...))(t)
	}
	program := func(text string) {
		writeFile(t, dir, "tooling/cmd/greeter/main.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Print(\""+text+"\") }\n")
	}
	run("init", "-q", "-b", "main")
	writeFile(t, dir, "go.mod", "module example.test\n\ngo 1.26\n")
	writeFile(t, dir, ".gitignore", "/.build/\n")
	program("previous")
	run("add", ".")
	run("commit", "-q", "-m", "previous")
	release := Release{Name: "previous", Commit: run("rev-parse", "HEAD")}
	program("new")
	run("commit", "-q", "-a", "-m", "new")

	for range 2 { // the second call finds the program
		folder := must.Get(BuildRelease(ctx, dir, release, []string{"greeter"}))(t)
		if output, err := exec.CommandContext(ctx, filepath.Join(folder, "greeter")).Output(); err != nil || string(output) != "previous" {
			t.Errorf("the program of the release prints %q, %v", output, err)
		}
	}
	if worktrees := run("worktree", "list"); strings.Count(worktrees, "\n") != 0 {
		t.Errorf("worktrees are left:\n%s", worktrees)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, ".build", "previous")); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v; want only the programs", entries, err)
	}
	if status := run("status", "--porcelain"); status != "" {
		t.Errorf("the checkout has changed:\n%s", status)
	}
	if _, err := BuildRelease(ctx, dir, release, []string{"missing"}); err == nil || !strings.Contains(err.Error(), "no program missing") {
		t.Errorf("a program that the release does not have: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := BuildRelease(ended, dir, release, []string{"other"}); err == nil {
		t.Error("Build succeeds although the context has ended")
	}

	side := run("commit-tree", "-m", "side", run("rev-parse", "HEAD^{tree}"))
	for reason, c := range map[string]struct{ commit, want string }{
		"a commit that is not in the history": {side, "is not in the history"},
		"a commit that does not exist":        {strings.Repeat("1", 40), "has no commit"},
	} {
		if err := CheckRelease(ctx, dir, Release{Name: "x", Commit: c.commit}); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoHistory) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	clone := filepath.Join(t.TempDir(), "clone")
	run("clone", "-q", "--depth", "1", "file://"+dir, clone)
	if err := CheckRelease(ctx, clone, release); !errors.Is(err, ErrNoHistory) {
		t.Errorf("a shallow clone: %v", err)
	}
	if err := CheckRelease(ctx, t.TempDir(), release); !errors.Is(err, ErrNoHistory) {
		t.Errorf("a folder that is not a clone: %v", err)
	}
}
