// Package node runs the JavaScript programs of the tests with Node, on modules that their lock files pin. Node is never
// needed to build or to run a region: a test that uses it is skipped, saying so, where it cannot be had.
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

// oldest is the first major version of Node that the programs run on.
const oldest = 20

// ErrMissing says that Node or a program's modules cannot be had here.
var ErrMissing = errors.New("there is no usable Node")

// Prepare finds Node and brings the modules of the program in dir to what its lock file says. The error is ErrMissing when
// the machine has no Node, or cannot get the modules.
func Prepare(ctx context.Context, dir string) error {
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), ".")
	if number, err := strconv.Atoi(major); err != nil || number < oldest {
		return fmt.Errorf("%w: its version is %s, needed is %d or later", ErrMissing, strings.TrimSpace(string(version)), oldest)
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

// fresh reports whether the modules were installed from the lock file as it is now.
func fresh(dir string) bool {
	locked, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	installed, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && !installed.ModTime().Before(locked.ModTime())
}

// Command is a run of a program in dir, after Prepare.
func Command(ctx context.Context, dir, program string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "node", append([]string{program}, arguments...)...)
	command.Dir = dir
	return command
}
