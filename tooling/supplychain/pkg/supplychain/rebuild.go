// Package supplychain shows what programs are made of. It builds programs twice, in different folders and with separate caches, and compares the
// results: a program that is the same both times depends on its sources and the Go toolchain, and on nothing else of the machine. It writes the
// bill of materials of a program in the format of CycloneDX, from the modules that the Go linker records in the program, and how programs were
// built: an in-toto statement with the predicate of SLSA provenance 1.0. It runs govulncheck, if a vulnerability database can be reached.
package supplychain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// BuildFlags returns the flags of go build with which programs do not depend on the folder of the sources or on Git. The provenance has the
// commit.
func BuildFlags() []string { return []string{"-trimpath", "-buildvcs=false"} }

// BuildEnvironment is the environment of the builds, in addition to that of this process: without a C compiler, whose version would matter.
func BuildEnvironment() []string { return []string{"CGO_ENABLED=0", "GOFLAGS="} }

// BuildOptions configure a build.
type BuildOptions struct {
	// Source is a folder of a Git working tree. The files that Git tracks or would add are built.
	Source string
	// Flags are the flags of go build.
	Flags []string
	// Caches are the build caches of the two builds. Where one is empty, that build has a cache of its own without content, so that it
	// compiles every package.
	Caches [2]string
}

// Program is a program that was the same in both builds.
type Program struct {
	Name, Package, Path string
	// SHA256 is the digest of the file, in hexadecimal.
	SHA256 string
}

// BuildTwice builds packages twice and stores the programs in the folder into. It returns an error that names each program of which the two
// builds differ, and stores none of them.
func BuildTwice(ctx context.Context, o BuildOptions, into string, packages ...string) ([]Program, error) {
	work, err := os.MkdirTemp("", "rebuild-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	first, second := filepath.Join(work, "a"), filepath.Join(work, "another", "folder")
	for i, folder := range []string{first, second} {
		if err := o.build(ctx, folder, o.Caches[i], packages); err != nil {
			return nil, err
		}
	}
	var programs []Program
	var different []error
	for _, pkg := range packages {
		p := Program{Name: filepath.Base(pkg), Package: pkg}
		if p.SHA256, err = Digest(filepath.Join(first, "bin", p.Name)); err != nil {
			return nil, err
		}
		again, err := Digest(filepath.Join(second, "bin", p.Name))
		if err != nil {
			return nil, err
		}
		if again != p.SHA256 {
			different = append(different, fmt.Errorf("%s is not reproducible: the SHA-256 of two builds in different folders is %s and %s", pkg, p.SHA256, again))
		}
		p.Path = filepath.Join(into, p.Name)
		programs = append(programs, p)
	}
	if err := errors.Join(different...); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	for _, p := range programs {
		if err := copyFile(filepath.Join(first, "bin", p.Name), p.Path, 0o755); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// build copies the sources to a folder and builds packages into its folder bin.
func (o BuildOptions) build(ctx context.Context, folder, cache string, packages []string) error {
	source := filepath.Join(folder, "source")
	if err := CopySources(ctx, o.Source, source); err != nil {
		return fmt.Errorf("copying the sources: %w", err)
	}
	if cache == "" {
		cache = filepath.Join(folder, "cache")
		defer func() { _ = os.RemoveAll(cache) }()
	}
	bin := filepath.Join(folder, "bin") + string(filepath.Separator)
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-o", bin}, o.Flags, packages)...)
	command.Dir = source
	command.Env = slices.Concat(os.Environ(), BuildEnvironment(), []string{"GOCACHE=" + cache, "PWD=" + source})
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}

// CopySources copies the files of a Git working tree that Git tracks or would add.
func CopySources(ctx context.Context, from, to string) error {
	command := exec.CommandContext(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z")
	command.Dir = from
	var problem bytes.Buffer
	command.Stderr = &problem
	list, err := command.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w: %s", err, strings.TrimSpace(problem.String()))
	}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is deleted and the deletion is not committed
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if info.Mode().Type() == os.ModeSymlink {
			link, err := os.Readlink(filepath.Join(from, name))
			if err == nil {
				err = os.Symlink(link, target)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := copyFile(filepath.Join(from, name), target, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// Digest returns the SHA-256 of a file in hexadecimal.
func Digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
