package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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

// root returns the repository's root.
func root(t *testing.T) string {
	t.Helper()
	DependOnCode(t)
	return must.Get(filepath.Abs(".."))(t)
}

// walk calls visit with every file of the repository that is not ignored, by its path relative to the root.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	top := root(t)
	must.Do(t, filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
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
	}))
}

// goFiles returns the Go files of the repository. All tests share them, because each of them would take seconds to parse them.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	top := root(t)
	parseOnce.Do(func() {
		var names []string
		walk(t, func(name string) {
			if path.Ext(name) == ".go" && !strings.Contains(name, "/testdata/") {
				names = append(names, name)
			}
		})
		files := make([]goFile, len(names))
		var group errgroup.Group
		group.SetLimit(runtime.GOMAXPROCS(0))
		for i, name := range names {
			group.Go(func() (err error) {
				files[i], err = parseFile(top, name)
				return err
			})
		}
		must.Do(t, group.Wait())
		parsedFiles = files
	})
	if len(parsedFiles) < 50 {
		t.Fatalf("found only %d Go files: the walk is broken", len(parsedFiles))
	}
	return parsedFiles
}

var (
	parseOnce   sync.Once
	parsedFiles []goFile
)

func parseFile(top, name string) (goFile, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, filepath.Join(top, filepath.FromSlash(name)), nil, parser.ParseComments)
	if err != nil {
		return goFile{}, err
	}
	file := goFile{path: name, syntax: syntax, files: set}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, err
		}
		file.imports = append(file.imports, imported)
	}
	return file, nil
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
	"internal/stubkubelet/server.go":                    "simulated kubelets, for programs without the dependencies of processes",
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

// folderLayers lists the folders of each layer, from the lowest. hcpctl, whose folder is in tooling, starts whole regions.
var folderLayers = [][]string{{"api"}, {"internal"}, {"tooling"}, services, {"dev-infrastructure"}, {"tooling/hcpctl"}, {"test"}}

// layerOf returns the index of the highest of folderLayers that contains a package. A package of no layer is above all, so that none may import it.
func layerOf(name string) int {
	for i, folders := range slices.Backward(folderLayers) {
		if slices.ContainsFunc(folders, within(name)) {
			return i
		}
	}
	return len(folderLayers)
}

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

// installers are the folders with what installs regions. The services and what a region runs do not depend on them, so who changes a service
// neither builds nor tests them.
var installers = []string{
	"dev-infrastructure/installation", "dev-infrastructure/kubernetes", "tooling/alerts", "tooling/charts", "tooling/configure", "tooling/dashboards", "tooling/image-sync",
	"tooling/image-updater", "tooling/images", "tooling/infrastructure", "tooling/mesh-policies", "tooling/registry", "tooling/rollout", "tooling/supplychain",
}

// installersOfHcpctl are those that hcpctl imports, because it prints configurations and draws dashboards.
var installersOfHcpctl = []string{"tooling/configure", "tooling/dashboards"}

// librariesOfInstallers are the libraries that only installers may import.
var librariesOfInstallers = []string{"github.com/CycloneDX", "github.com/google/go-containerregistry", "helm.sh/helm", "istio.io", "k8s.io/cli-runtime"}

// within returns a function that reports whether a package is in a folder.
func within(imported string) func(folder string) bool {
	return func(folder string) bool { return imported == folder || strings.HasPrefix(imported, folder+"/") }
}

// importComplaint returns the import rule that an import breaks, or an empty string.
func importComplaint(file goFile, imported string) string {
	switch {
	case strings.HasPrefix(imported, "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos") && !file.under("internal/database") && !file.under("tooling/cosmos-emulator"):
		return "only internal/database may use the Cosmos DB client"
	case strings.HasPrefix(imported, "github.com/jackc/pgx") && !file.under("internal/postgres") && !file.under("cluster-service") && !file.under("maestro") && !file.test():
		return "only internal/postgres, cluster-service and maestro may use PostgreSQL"
	case strings.HasPrefix(imported, "sigs.k8s.io/controller-runtime") && !file.under("hypershift") && !file.under("maestro/agent") && !file.under("test") && !file.test() && !strings.HasSuffix(file.dir(), "test"):
		return "only hypershift and maestro/agent may have a client of a management cluster"
	case strings.HasPrefix(imported, "github.com/prometheus/prometheus/") && !file.under("tooling/alerts/pkg/lint"):
		return "only tooling/alerts/pkg/lint may use the parser of Prometheus, which programs must not compile"
	case slices.Contains(allGroups, imported) && slices.ContainsFunc(withoutAllGroups, file.under) && !file.test() && !strings.HasSuffix(file.dir(), "test"):
		return "the program would link the types of all groups of Kubernetes: use the dynamic or metadata client, or the client of one group"
	case slices.ContainsFunc(librariesOfInstallers, within(imported)) && !slices.ContainsFunc(installers, file.under):
		return "only what installs regions may use this library"
	case strings.HasPrefix(imported, "k8s.io/") && file.under("internal") && !file.under("internal/stubkubelet"):
		return "of internal, only stubkubelet may use the libraries of Kubernetes, so that a program without Kubernetes does not link them"
	}
	ours, isOurs := strings.CutPrefix(imported, modulePrefix)
	if !isOurs {
		return ""
	}
	if file.under("api") && !strings.HasPrefix(ours, "api/") {
		return "api is a module for clients and must import no other package of the repository"
	}
	if slices.ContainsFunc(installers, within(ours)) && !slices.ContainsFunc(installers, file.under) && !file.under("test") && !(file.under("tooling/hcpctl") && slices.ContainsFunc(installersOfHcpctl, within(ours))) {
		return "only what installs regions, and hcpctl in part, may import what installs regions"
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
	if layerOf(ours) > layerOf(file.dir()) {
		return "a folder may import only lower layers"
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

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

func TestDocumentLinksResolve(t *testing.T) {
	walk(t, func(name string) {
		if path.Ext(name) != ".md" {
			return
		}
		text := must.Get(os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name))))(t)
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

// TestFoldersHaveReadmes checks that api, each service, each folder of tooling and each of what installs regions has a README.
func TestFoldersHaveReadmes(t *testing.T) {
	folders := map[string]bool{}
	for _, folder := range installers {
		folders[folder] = true
	}
	for _, file := range goFiles(t) {
		if folder := folderOf(file); !file.under("internal") && folder != "tooling/tools" && folder != "tooling/third-party" {
			folders[folder] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(folder), "README.md")); err != nil {
			t.Errorf("%s has no README.md", folder)
		}
	}
}
