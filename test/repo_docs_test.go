package test

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// codeLink matches a link with an identifier as its text and a Go file as its target, such as [`Server.Run`](app/run.go).
var codeLink = regexp.MustCompile("\\[`([A-Za-z0-9_.]+)`\\]\\(([^)#\\s]+\\.go)\\)")

// TestDocumentedFunctionsExist checks that documents name functions, methods and types that the linked Go file declares.
func TestDocumentedFunctionsExist(t *testing.T) {
	declared := map[string]map[string]bool{}
	for _, file := range goFiles(t) {
		declared[file.path] = declaredNames(file.syntax)
	}
	walk(t, func(name string) {
		if path.Ext(name) != ".md" {
			return
		}
		text := must.Get(os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name))))(t)
		for _, match := range codeLink.FindAllStringSubmatch(string(text), -1) {
			identifier, target := match[1], path.Join(path.Dir(name), match[2])
			last := identifier[strings.LastIndexByte(identifier, '.')+1:]
			if !declared[target][last] {
				t.Errorf("%s: %s does not declare %s", name, target, identifier)
			}
		}
	})
}

// declaredNames returns the names of the functions, methods, types, constants and variables that a file declares.
func declaredNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			names[declaration.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// folderOf returns the folder of a service or program to which a file belongs; of tooling and internal, the folder below.
func folderOf(file goFile) string {
	if file.under("internal") || file.under("tooling") {
		return strings.Join(strings.SplitN(file.path, "/", 3)[:2], "/")
	}
	return strings.SplitN(file.path, "/", 2)[0]
}

// tables returns a sorted table with a header for each folder.
func tables(rows map[string][]string, header string) string {
	var text strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(rows)) {
		slices.Sort(rows[folder])
		text.WriteString("\n### " + folder + "\n\n" + header + strings.Join(rows[folder], ""))
	}
	return text.String() + "\n"
}

// compareGenerated compares the part of a document between two markers with want. With -update it rewrites the part.
func compareGenerated(t *testing.T, document, begin, end, want string) {
	t.Helper()
	name := filepath.Join(root(t), filepath.FromSlash(document))
	text := must.Get(os.ReadFile(name))(t)
	before, rest, found := strings.Cut(string(text), begin)
	current, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Fatalf("%s lacks the markers of its generated part", document)
	case current == want:
	case !*update:
		t.Errorf("%s is out of date: run go test ./test -run '^%s$' -update", document, t.Name())
	default:
		must.Do(t, os.WriteFile(name, []byte(before+begin+want+end+after), 0o644))
	}
}
