package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/test/sources"
)

const modulePrefix = "github.com/hcpmesh/hcpmesh/"

// goFile is a Go source file of the repository.
type goFile struct {
	// path is relative to the repository's root, with slashes.
	path    string
	syntax  *ast.File
	files   *token.FileSet
	imports []string
}

func (f goFile) dir() string     { return path.Dir(f.path) }
func (f goFile) test() bool      { return strings.HasSuffix(f.path, "_test.go") }
func (f goFile) generated() bool { return ast.IsGenerated(f.syntax) }
func (f goFile) under(d string) bool {
	return f.path == d || strings.HasPrefix(f.path, d+"/")
}

// line returns the file and line of a node, for error messages.
func (f goFile) line(node ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.files.Position(node.Pos()).Line)
}

// root returns the repository's root: the folder that contains go.work.
func root(t *testing.T) string {
	t.Helper()
	sources.DependOnAll(t)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.work above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// walk calls visit with every file of the repository that is not ignored, by its path relative to the root.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != top && (base == ".git" || base == ".build" || base == ".region" || base == "node_modules") {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() {
			relative, err := filepath.Rel(top, name)
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(relative))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	walk(t, func(name string) {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") {
			return
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, filepath.Join(root(t), filepath.FromSlash(name)), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		file := goFile{path: name, syntax: syntax, files: set}
		for _, spec := range syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			file.imports = append(file.imports, imported)
		}
		files = append(files, file)
	})
	if len(files) < 50 {
		t.Fatalf("found only %d Go files: the walk is broken", len(files))
	}
	return files
}

func TestPackagesHaveDocComments(t *testing.T) {
	documented, packages := map[string]bool{}, map[string]bool{}
	for _, file := range goFiles(t) {
		if file.test() {
			continue
		}
		packages[file.dir()] = true
		if file.generated() || (file.syntax.Doc != nil && strings.TrimSpace(file.syntax.Doc.Text()) != "") {
			documented[file.dir()] = true
		}
	}
	for dir := range packages {
		if !documented[dir] {
			t.Errorf("%s: the package has no doc comment", dir)
		}
	}
}

func TestPackageNamesAreSpecific(t *testing.T) {
	forbidden := map[string]bool{"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "types": true, "misc": true, "models": true, "base": true}
	for _, file := range goFiles(t) {
		if forbidden[file.syntax.Name.Name] || forbidden[path.Base(file.dir())] {
			t.Errorf("%s: the package name %s is too general", file.path, file.syntax.Name.Name)
		}
	}
}

func TestPackagesHaveNoInit(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.generated() {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" {
				t.Errorf("%s: func init: pass dependencies to constructors instead", file.line(function))
			}
		}
	}
}

// TestTestsDoNotSleep checks that tests call time.Sleep only in synctest bubbles, where it advances virtual time and is exact. A function that
// sleeps either calls package synctest or has a doc comment that names the bubble: "It runs in a synctest bubble."
func TestTestsDoNotSleep(t *testing.T) {
	for _, file := range goFiles(t) {
		if !file.test() {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && len(calls(function, "synctest", "")) > 0 || ok && strings.Contains(function.Doc.Text(), "in a synctest bubble") {
				continue
			}
			for _, sleep := range calls(declaration, "time", "Sleep") {
				t.Errorf("%s: time.Sleep in a test: wait for a condition with eventually.Soon, or run the test in a synctest bubble", file.line(sleep))
			}
		}
	}
}

// serversWithOwnLimits are the files with an HTTP server that process.NewHTTPServer does not make, or a gRPC server that grpcserver.New does not make,
// and the reasons.
var serversWithOwnLimits = map[string]string{
	"cluster-service/pkg/maestro/maestrotest/server.go": "test environment",
	"dev-infrastructure/installation/outside.go":        "test environment",
	"dev-infrastructure/kubernetes/cluster.go":          "test environment",
	"gateway/pkg/tunnel/agent/agent.go":                 "the log of HTTP/2 in a connection that the agent has made",
	"internal/grpcserver/limits.go":                     "the function",
	"internal/process/http.go":                          "the function",
	"internal/testing/grpctest/grpctest.go":             "test environment",
	"internal/stubkubelet/server.go":                    "simulated kubelets, in a module without the dependencies of processes",
	"tooling/hcpctl/pkg/login/browser.go":               "serves the browser of the user on loopback until the login ends",
}

// TestServersHaveLimits checks that only process.NewHTTPServer makes HTTP servers and grpcserver.New gRPC servers, and that the functions of package http
// that serve without timeouts are not called.
func TestServersHaveLimits(t *testing.T) {
	found := map[string]bool{}
	for _, file := range goFiles(t) {
		if file.test() {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if literal, ok := node.(*ast.CompositeLit); ok && literal.Type != nil && types.ExprString(literal.Type) == "http.Server" {
				if found[file.path] = true; serversWithOwnLimits[file.path] == "" {
					t.Errorf("%s: an http.Server without the limits of all servers: call process.NewHTTPServer", file.line(node))
				}
			}
			return true
		})
		for _, call := range calls(file.syntax, "grpc", "NewServer") {
			if found[file.path] = true; serversWithOwnLimits[file.path] == "" {
				t.Errorf("%s: a gRPC server without the limits of all servers: call grpcserver.New", file.line(call))
			}
		}
		for _, function := range []string{"Serve", "ServeTLS", "ListenAndServe", "ListenAndServeTLS"} {
			for _, call := range calls(file.syntax, "http", function) {
				t.Errorf("%s: http.%s serves without limits: call process.NewHTTPServer", file.line(call), function)
			}
		}
	}
	for name := range serversWithOwnLimits {
		if !found[name] {
			t.Errorf("%s is an exception and has no server", name)
		}
	}
}

// calls returns the selections of a name of a package in a node; an empty name stands for all names.
func calls(in ast.Node, packageName, name string) []ast.Node {
	var found []ast.Node
	ast.Inspect(in, func(node ast.Node) bool {
		selected, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := selected.X.(*ast.Ident); ok && of.Name == packageName && (name == "" || selected.Sel.Name == name) {
			found = append(found, selected)
		}
		return true
	})
	return found
}

// services lists the service folders. A service must not import the packages of another one.
var services = []string{"frontend", "backend", "cluster-service", "maestro", "hypershift", "admin", "monitor", "gateway", "maintenance"}

func TestImportRules(t *testing.T) {
	for _, file := range goFiles(t) {
		for _, imported := range file.imports {
			if complaint := importComplaint(file, imported); complaint != "" {
				t.Errorf("%s imports %s: %s", file.path, imported, complaint)
			}
		}
	}
}

// allGroups are packages with the clients or informers of all groups of Kubernetes, or that import those. They are half of a program that needs
// few objects, and of the time to link it.
var allGroups = []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/dynamic/dynamicinformer", "k8s.io/client-go/metadata/metadatainformer"}

// withoutAllGroups are the folders of programs without allGroups.
var withoutAllGroups = []string{"gateway", "hypershift/pkg/logforwarder", "monitor", "tooling/hcpctl"}

// importComplaint returns the import rule that an import breaks, or an empty string.
func importComplaint(file goFile, imported string) string {
	switch {
	case strings.HasPrefix(imported, "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos") && !file.under("internal/database") && !file.under("internal/testing/databasetest") && !file.under("tooling/cosmos-emulator"):
		return "only internal/database may use the Cosmos DB client"
	case strings.HasPrefix(imported, "github.com/jackc/pgx") && !file.under("internal/postgres") && !file.under("cluster-service") && !file.under("maestro") && !file.test():
		return "only internal/postgres, cluster-service and maestro may use PostgreSQL"
	case strings.HasPrefix(imported, "sigs.k8s.io/controller-runtime") && !file.under("hypershift") && !file.under("maestro/agent") && !file.under("test") && !file.test() && !strings.HasSuffix(file.dir(), "test"):
		return "only hypershift and maestro/agent may have a client of a management cluster"
	case strings.HasPrefix(imported, "github.com/prometheus/prometheus/") && !file.under("tooling/alerts/pkg/lint"):
		return "only tooling/alerts/pkg/lint may use the parser of Prometheus, which programs must not compile"
	case slices.Contains(allGroups, imported) && slices.ContainsFunc(withoutAllGroups, file.under) && !file.test() && !strings.HasSuffix(file.dir(), "test"):
		return "the program would link the types of all groups of Kubernetes: use the dynamic or metadata client, or the client of one group"
	}
	ours, isOurs := strings.CutPrefix(imported, modulePrefix)
	if !isOurs {
		return ""
	}
	if file.under("api") && !strings.HasPrefix(ours, "api/") {
		return "api must not import other modules of the repository"
	}
	if strings.HasPrefix(ours, "api/") || strings.HasPrefix(ours, "internal/") {
		return ""
	}
	if (file.test() || strings.HasSuffix(file.dir(), "test")) && strings.HasPrefix(ours, "tooling/") && strings.Contains(ours, "-emulator/") {
		return "" // tests may run the emulators
	}
	if file.test() && strings.HasPrefix(ours, "tooling/arm-frontdoor/pkg/") {
		return "" // tests may sign people in with the issuer of local regions
	}
	if file.under("internal") {
		return "internal may import only api"
	}
	for _, service := range services {
		if strings.HasPrefix(ours, service+"/") && !file.under(service) && !file.under("test") && !file.under("dev-infrastructure/cmd/region-programs") {
			return "a service must not import packages of another service"
		}
		if file.under(service) && !strings.HasPrefix(ours, service+"/") {
			return "a service may import only api, internal and its own packages"
		}
	}
	if strings.Contains(ours, "/cmd/") {
		return "packages under cmd must not be imported"
	}
	return ""
}

var ownRequirement = regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(modulePrefix) + `(\S+) v\S+( // indirect)?$`)

// TestModulesDoNotRequireEachOther checks that the requirements between the repository's modules have no cycle.
func TestModulesDoNotRequireEachOther(t *testing.T) {
	requires := map[string][]string{}
	walk(t, func(name string) {
		if path.Base(name) != "go.mod" {
			return
		}
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range ownRequirement.FindAllStringSubmatch(string(text), -1) {
			requires[path.Dir(name)] = append(requires[path.Dir(name)], match[1])
		}
	})
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(module string, from []string)
	visit = func(module string, from []string) {
		from = append(from, module)
		switch state[module] {
		case visiting:
			t.Errorf("modules require each other: %s", strings.Join(from, " → "))
			return
		case done:
			return
		}
		state[module] = visiting
		for _, required := range requires[module] {
			visit(required, from)
		}
		state[module] = done
	}
	for module := range requires {
		visit(module, nil)
	}
}

var moduleRequirement = regexp.MustCompile(`(?m)^\s*(?:require )?(\S+\.\S+/\S+|go\.\S+) (v\S+)$`)

// TestModulesAgreeOnPins checks direct requirements. With one go.work, two different pins of a module would silently
// resolve to the higher version. What a region runs of tooling/third-party shares packages with the workspace.
func TestModulesAgreeOnPins(t *testing.T) {
	pins := map[string]map[string][]string{}
	walk(t, func(name string) {
		if path.Base(name) != "go.mod" || strings.HasPrefix(name, "tooling/tools/") {
			return
		}
		if shared := map[string]bool{"kubernetes": true, "etcd": true}; strings.HasPrefix(name, "tooling/third-party/") && !shared[path.Base(path.Dir(name))] {
			return
		}
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range moduleRequirement.FindAllStringSubmatch(string(text), -1) {
			module, version := match[1], match[2]
			if strings.HasPrefix(module, modulePrefix) {
				continue
			}
			if pins[module] == nil {
				pins[module] = map[string][]string{}
			}
			pins[module][version] = append(pins[module][version], name)
		}
	})
	for module, versions := range pins {
		if len(versions) > 1 {
			t.Errorf("%s is pinned to different versions: %v", module, versions)
		}
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

func TestDocumentLinksResolve(t *testing.T) {
	walk(t, func(name string) {
		if path.Ext(name) != ".md" {
			return
		}
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			target := match[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(path.Join(path.Dir(name), target)))); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			}
		}
	})
}

func TestModulesHaveReadmes(t *testing.T) {
	var missing []string
	walk(t, func(name string) {
		if path.Base(name) != "go.mod" || strings.HasPrefix(name, "tooling/third-party/") || strings.HasPrefix(name, "tooling/tools/") {
			return
		}
		if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(path.Dir(name)), "README.md")); err != nil {
			missing = append(missing, path.Dir(name))
		}
	})
	sort.Strings(missing)
	if len(missing) > 0 {
		t.Errorf("modules without a README: %v", missing)
	}
}
