package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

// The platform of the images. All node pools of the service and management clusters have it.
const (
	OS           = "linux"
	Architecture = "amd64"
)

// Compiler builds programs into a folder.
type Compiler struct {
	// Root is the root of the repository.
	Root string
	// Into is the folder for the programs, an absolute path.
	Into string
	// Cache is Go's build cache; empty means the user's.
	Cache string
}

// Path returns the file of a program. Programs of other modules are apart, so that names do not collide.
func (b *Compiler) Path(p Program) string {
	if p.Pin != "" {
		return filepath.Join(b.Into, "pinned", p.Name)
	}
	return filepath.Join(b.Into, p.Name)
}

// Build builds the programs of images.
func (b *Compiler) Build(ctx context.Context, images []Image) error {
	var ours []string
	var pinned []Program
	for _, image := range images {
		for _, program := range image.Programs {
			switch {
			case program.Pin == "" && program.LDFlags != "":
				return fmt.Errorf("%s: ldflags are for packages of other modules", program.Package)
			case program.Pin == "":
				ours = append(ours, program.Package)
			case !slices.Contains(pinned, program):
				pinned = append(pinned, program)
			}
		}
	}
	if len(ours) > 0 {
		slices.Sort(ours)
		arguments := slices.Concat([]string{"build", "-o", b.Into + string(filepath.Separator)}, flags(""), slices.Compact(ours))
		if _, err := b.run(ctx, b.Root, arguments...); err != nil {
			return err
		}
	}
	for _, program := range pinned {
		if err := b.buildPinned(ctx, program); err != nil {
			return err
		}
	}
	return nil
}

func (b *Compiler) buildPinned(ctx context.Context, p Program) error {
	dir := filepath.Join(b.Root, filepath.FromSlash(p.Pin))
	version, err := b.run(ctx, dir, "list", "-f", "{{.Module.Version}}", p.Package)
	if err != nil {
		return err
	}
	arguments := slices.Concat([]string{"build", "-o", b.Path(p)}, flags(strings.ReplaceAll(p.LDFlags, "{version}", version)), []string{p.Package})
	_, err = b.run(ctx, dir, arguments...)
	return err
}

// Folder returns the folder of a module with files of an image. It downloads the module if necessary.
func (b *Compiler) Folder(ctx context.Context, f Files) (string, error) {
	dir := filepath.Join(b.Root, filepath.FromSlash(f.Pin))
	if _, err := b.run(ctx, dir, "mod", "download", f.Module); err != nil {
		return "", err
	}
	folder, err := b.run(ctx, dir, "list", "-m", "-f", "{{.Dir}}", f.Module)
	return filepath.Join(folder, filepath.FromSlash(f.Folder)), err
}

// Zones returns the time zones of the toolchain.
func (b *Compiler) Zones(ctx context.Context) ([]byte, error) {
	goroot, err := b.run(ctx, b.Root, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(goroot, "lib", "time", "zoneinfo.zip"))
}

// flags returns the flags of go build. Programs have no symbol table; panics and profiles do not need it.
func flags(linker string) []string {
	return append(supplychain.BuildFlags(), strings.TrimSpace("-ldflags=-s -w "+linker))
}

// run runs a command of go and returns its output.
func (b *Compiler) run(ctx context.Context, dir string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = dir
	command.Env = slices.Concat(os.Environ(), supplychain.BuildEnvironment(), []string{"GOOS=" + OS, "GOARCH=" + Architecture, "GOAMD64=v1", "GOEXPERIMENT=", "PWD=" + dir})
	if b.Cache != "" {
		command.Env = append(command.Env, "GOCACHE="+b.Cache)
	}
	var output, problem bytes.Buffer
	command.Stdout, command.Stderr = &output, &problem
	if err := command.Run(); err != nil {
		return "", errors.Join(fmt.Errorf("go %s in %s: %w", arguments[0], dir, err), errors.New(strings.TrimSpace(problem.String())))
	}
	return strings.TrimSpace(output.String()), nil
}
