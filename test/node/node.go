// Package node runs the JavaScript programs of the tests with Node and the modules that their lock files pin. Building and
// running a region does not need Node. Tests that use it skip with a message if it is not installed.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// oldest is the oldest supported major version of Node.
const oldest = 20

// ErrMissing reports that Node, or the modules of a program, are not available.
var ErrMissing = errors.New("no usable installation of Node")

// Prepare checks the version of Node and installs the modules that the lock file in dir pins. It returns ErrMissing if there is
// no suitable Node, or if the modules cannot be installed.
func Prepare(ctx context.Context, dir string) error {
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), ".")
	if number, err := strconv.Atoi(major); err != nil || number < oldest {
		return fmt.Errorf("%w: version %s is installed, version %d or later is required", ErrMissing, strings.TrimSpace(string(version)), oldest)
	}
	if fresh(dir) {
		return nil
	}
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir = dir
	if output, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: npm ci: %w\n%s", ErrMissing, err, output)
	}
	return nil
}

// fresh reports whether the installed modules match the current lock file.
func fresh(dir string) bool {
	locked, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	installed, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && !installed.ModTime().Before(locked.ModTime())
}

// Command returns a command that runs a program in dir. Call Prepare first.
func Command(ctx context.Context, dir, program string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "node", append([]string{program}, arguments...)...)
	command.Dir = dir
	return command
}
