package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// maxCompiledTwice is the highest number of packages that may be compiled for more than one of the builds of a region's programs.
const maxCompiledTwice = 0

// TestPackagesAreCompiledOnce checks that the builds of the programs that a region runs, and of api alone, select the same versions of the
// packages that they share, so that the build cache has one result for all. If it fails, let the modules of tooling/third-party, or api, require the
// version that the module of the repository selects.
func TestPackagesAreCompiledOnce(t *testing.T) {
	builds := []build{
		listBuild(t, ".", "./dev-infrastructure/cmd/region-programs", "./tooling/hcpctl/cmd/hcpctl"),
		listBuild(t, "tooling/third-party/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "./management-controllers"),
		listBuild(t, "tooling/third-party/etcd", "go.etcd.io/etcd/server/v3"),
		listBuild(t, "api", "./..."),
	}
	var twice []string
	for i, one := range builds {
		for _, other := range builds[i+1:] {
			for name := range one {
				if _, shared := other[name]; shared && one.inputs(name) != other.inputs(name) {
					twice = append(twice, name+": "+one[name].version()+" and "+other[name].version())
				}
			}
		}
	}
	if len(twice) > maxCompiledTwice {
		slices.Sort(twice)
		t.Errorf("%d packages are compiled more than once, by versions of their modules:\n%s", len(twice), strings.Join(twice, "\n"))
	}
}

var nightlyPackages = regexp.MustCompile(`(?m)^nightly_packages = (.*)$`)

// TestNightlyPackagesAreListed checks that the Makefile has in `nightly_packages` exactly the packages of test/ whose tests all begin with nightly.Only.
// Another test in one of them would never run in `make test`.
func TestNightlyPackagesAreListed(t *testing.T) {
	makefile := must.Get(os.ReadFile(filepath.Join(root(t), "Makefile")))(t)
	line := nightlyPackages.FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile has no line nightly_packages = …")
	}
	others := map[string][]string{}
	for _, file := range goFiles(t) {
		if !file.test() || !file.under("test") {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil || function.Name.Name == "TestMain" || !runnable.MatchString(function.Name.Name) {
				continue
			}
			if others[file.dir()] == nil {
				others[file.dir()] = []string{}
			}
			if len(function.Body.List) == 0 || len(calls(function.Body.List[0], "nightly", "Only")) == 0 {
				others[file.dir()] = append(others[file.dir()], function.Name.Name)
			}
		}
	}
	listed := strings.Fields(strings.ReplaceAll(string(line[1]), "%/", ""))
	for dir, names := range others {
		if isListed := slices.Contains(listed, dir); isListed && len(names) > 0 {
			t.Errorf("%s: %s does not begin with nightly.Only, and the Makefile has the package in nightly_packages", dir, strings.Join(names, ", "))
		} else if !isListed && len(names) == 0 {
			t.Errorf("%s: all tests begin with nightly.Only: add the package to nightly_packages in the Makefile", dir)
		}
	}
	for _, dir := range listed {
		if others[dir] == nil {
			t.Errorf("the Makefile has %s in nightly_packages, which has no tests", dir)
		}
	}
}

// runnable matches the names of functions that the go command runs as tests.
var runnable = regexp.MustCompile(`^(Test|Fuzz|Example)([A-Z_]|$)`)

// build is all packages of a build by import path.
type build map[string]*buildPackage

// buildPackage is a package as the go command lists it.
type buildPackage struct {
	ImportPath string
	Imports    []string
	ImportMap  map[string]string
	Standard   bool
	Module     *struct {
		Version string
		Replace *struct{ Version string }
	}
	// inputs is the result of build.inputs.
	inputs string
}

// version returns the version of the package's module; empty for the standard library and for modules of the repository.
func (p *buildPackage) version() string {
	switch {
	case p.Module == nil:
		return ""
	case p.Module.Replace != nil:
		return p.Module.Replace.Version
	}
	return p.Module.Version
}

// inputs returns a text that differs where the go command would compile a package again: the version of the package and of all
// packages that it imports.
func (b build) inputs(name string) string {
	p := b[name]
	if p == nil || p.Standard {
		return ""
	}
	if p.inputs == "" {
		versions := map[string]bool{name + "@" + p.version(): true}
		for _, imported := range p.Imports {
			if mapped := p.ImportMap[imported]; mapped != "" {
				imported = mapped
			}
			for line := range strings.Lines(b.inputs(imported)) {
				versions[strings.TrimSpace(line)] = true
			}
		}
		lines := make([]string, 0, len(versions))
		for line := range versions {
			lines = append(lines, line+"\n")
		}
		slices.Sort(lines)
		p.inputs = strings.Join(lines, "")
	}
	return p.inputs
}

// listBuild lists the packages that packages in the module of a folder need.
func listBuild(t *testing.T, folder string, packages ...string) build {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-json=ImportPath,Imports,ImportMap,Standard,Module"}, packages...)...)
	command.Dir = filepath.Join(root(t), folder)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, problems.String())
	}
	listed := build{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		p := new(buildPackage)
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		listed[p.ImportPath] = p
	}
	if len(listed) < 100 {
		t.Fatalf("%s lists only %d packages", command, len(listed))
	}
	return listed
}
