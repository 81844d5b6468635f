package transport_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// proxyOf is the variable with the URL whose proxy the process of TestProxyOfEnvironment prints. Package http reads the variables of proxies
// once in each process.
const proxyOf = "HCPCTL_TEST_PROXY_OF"

func TestMain(m *testing.M) {
	target := os.Getenv(proxyOf)
	if target == "" {
		os.Exit(m.Run())
	}
	request, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		panic(err)
	}
	proxy, err := transport.System().Proxy(request)
	if err != nil {
		panic(err)
	}
	if proxy != nil {
		_, _ = os.Stdout.WriteString(proxy.String())
	}
}

// TestProxyOfEnvironment checks that the variables of the environment select the proxy.
func TestProxyOfEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		environment  []string
		target, want string
	}{
		"none":        {nil, "https://management.example", ""},
		"HTTPS_PROXY": {[]string{"HTTPS_PROXY=http://proxy.example:3128"}, "https://management.example", "http://proxy.example:3128"},
		"HTTP_PROXY":  {[]string{"HTTP_PROXY=http://proxy.example:3128"}, "http://store.example", "http://proxy.example:3128"},
		"NO_PROXY":    {[]string{"HTTPS_PROXY=http://proxy.example:3128", "NO_PROXY=.example"}, "https://management.example", ""},
	} {
		t.Run(name, func(t *testing.T) {
			process := exec.CommandContext(t.Context(), os.Args[0])
			process.Env = append(tc.environment, proxyOf+"="+tc.target)
			if got, err := process.Output(); err != nil || string(got) != tc.want {
				t.Errorf("the proxy is %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestNewTrustsOnlyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	must.Do(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	for path, want := range map[string]string{file: "contains no certificate", file + "x": "reading the certificate authority"} {
		if _, err := transport.New(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, err := transport.New(""); err != nil || got.TLSClientConfig.RootCAs != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
}

// TestOnlyThisPackageBuildsTransports searches the source of hcpctl for other transports, and for clients with the default one.
func TestOnlyThisPackageBuildsTransports(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Base(filepath.Dir(path)) == "transport" ||
			filepath.Base(filepath.Dir(path)) == "logintest" {
			return err
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if other := otherTransport(node); other != "" {
				t.Errorf("%s: %s does not use package transport", set.Position(node.Pos()), other)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 50 {
		t.Errorf("%d files: %v", files, err)
	}
}

// otherTransport returns the expression of a node that does not use package transport for its requests; "" for all other nodes.
func otherTransport(node ast.Node) string {
	switch node := node.(type) {
	case *ast.SelectorExpr:
		switch name := selected(node); name {
		case "http.DefaultClient", "http.DefaultTransport", "http.Get", "http.Head", "http.Post", "http.PostForm":
			return name
		}
	case *ast.CompositeLit:
		switch name := selected(node.Type); name {
		case "http.Transport":
			return name + "{}"
		case "http.Client", "api.Config":
			for _, element := range node.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if key, ok := pair.Key.(*ast.Ident); ok && (key.Name == "Transport" || key.Name == "RoundTripper") {
						return ""
					}
				}
			}
			return name + "{} without a transport"
		}
	}
	return ""
}

// selected returns package.Name of a selector; "" for other expressions.
func selected(expression ast.Expr) string {
	selector, ok := expression.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return from.Name + "." + selector.Sel.Name
}
