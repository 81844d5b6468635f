package skew

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// ErrNoHistory means that the repository does not contain the commit of a release, because the clone is shallow or is not a clone.
var ErrNoHistory = errors.New("this checkout has no complete history; run `git fetch --unshallow`")

// CheckRelease returns an error unless the commit of a release is in the history of the checkout's HEAD. For a checkout without history it wraps
// ErrNoHistory.
func CheckRelease(ctx context.Context, source string, release Release) error {
	shallow, err := runGit(ctx, source, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoHistory, err)
	}
	if _, err := runGit(ctx, source, "cat-file", "-e", release.Commit+"^{commit}"); err != nil {
		if shallow == "true" {
			return ErrNoHistory
		}
		return fmt.Errorf("%s: commit: the repository has no commit %s of release %s", ReleasesFile, release.Commit, release.Name)
	}
	if _, err := runGit(ctx, source, "merge-base", "--is-ancestor", release.Commit, "HEAD"); err != nil {
		if shallow == "true" {
			return ErrNoHistory
		}
		return fmt.Errorf("%s: commit: %s of release %s is not in the history of HEAD", ReleasesFile, release.Commit, release.Name)
	}
	return nil
}

// BuildRelease builds programs of a release from its commit and returns their folder, which is in .build/previous of the checkout. It builds only
// those that the folder does not have. Callers in several processes may run it at the same time.
func BuildRelease(ctx context.Context, source string, release Release, programs []string) (string, error) {
	folder := filepath.Join(source, ".build", "previous", release.Commit)
	if complete(folder, programs) {
		return folder, nil
	}
	if err := CheckRelease(ctx, source, release); err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), "build-")
	if err != nil {
		return "", err
	}
	// The context may have ended, and what it interrupted must not stay.
	cleanup := context.WithoutCancel(ctx)
	checkout := filepath.Join(work, "source")
	defer func() {
		_ = os.RemoveAll(work)
		_, _ = runGit(cleanup, source, "worktree", "prune")
	}()
	if _, err := runGit(ctx, source, "worktree", "add", "--detach", checkout, release.Commit); err != nil {
		return "", fmt.Errorf("checking out release %s: %w", release.Name, err)
	}
	mains, err := mainsOf(ctx, checkout)
	if err != nil {
		return "", err
	}
	built := filepath.Join(work, "programs")
	arguments := []string{"build", "-trimpath", "-o", built + string(filepath.Separator)}
	for _, program := range programs {
		if mains[program] == "" {
			return "", fmt.Errorf("release %s has no program %s", release.Name, program)
		}
		arguments = append(arguments, "./"+mains[program])
	}
	if err := os.Mkdir(built, 0o755); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = checkout
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building release %s: %w:\n%s", release.Name, err, bytes.TrimSpace(output))
	}
	for _, program := range programs {
		if err := os.Rename(filepath.Join(built, program), filepath.Join(folder, program)); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// complete reports whether a folder has all programs. BuildRelease moves only complete ones into it.
func complete(folder string, programs []string) bool {
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}

// mainsOf returns the folders of the programs of a checkout, by name.
func mainsOf(ctx context.Context, checkout string) (map[string]string, error) {
	list, err := runGit(ctx, checkout, "ls-files", "*/cmd/*/main.go")
	if err != nil {
		return nil, fmt.Errorf("listing the programs of the release: %w", err)
	}
	mains := map[string]string{}
	for file := range strings.FieldsSeq(list) {
		mains[path.Base(path.Dir(file))] = path.Dir(file)
	}
	return mains, nil
}

// runGit runs git in dir and returns its output.
func runGit(ctx context.Context, dir string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, arguments...)...)
	var output, problems bytes.Buffer
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", arguments[0], err, bytes.TrimSpace(problems.Bytes()))
	}
	return strings.TrimSpace(output.String()), nil
}
