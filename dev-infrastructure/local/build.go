package local

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// build builds the programs of the region: the third-party ones, which are built once for their pins, and ours, for which Go's build
// cache makes an unchanged one cheap.
func (r *Region) build(ctx context.Context) error {
	r.config.OnNote("building missing programs")
	if err := r.runInSource(ctx, filepath.Join(r.config.SourceDir, "tooling", "build.sh")); err != nil {
		return fmt.Errorf("building the programs of the region: %w", err)
	}
	return nil
}

func (r *Region) runInSource(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = r.config.SourceDir
	output, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if text := strings.TrimSpace(string(bytes.TrimSpace(output))); text != "" {
		return fmt.Errorf("%w:\n%s", err, text)
	}
	return err
}

// binDir returns the folder of our programs.
func (r *Region) binDir() string {
	if r.racing {
		return filepath.Join(r.config.SourceDir, ".build", "race")
	}
	return filepath.Join(r.config.SourceDir, ".build", "bin")
}

// program returns the path of one of our programs.
func (r *Region) program(name string) string { return filepath.Join(r.binDir(), name) }

func (r *Region) thirdParty(parts ...string) string {
	return filepath.Join(append([]string{r.config.SourceDir, ".build", "third-party"}, parts...)...)
}
