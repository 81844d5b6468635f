package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// stateAllowed lists the package-level variables that may hold state, with the reason.
var stateAllowed = map[string]string{
	"internal/entra/entratest signingKey":        "it is generated once in a test binary, because generating one for each emulator uses much CPU time",
	"maestro/agent configureLibrary":             "the OCM work agent keeps its feature gates and intervals in package variables that may be set once",
	"tooling/charts/pkg/charttest configuration": "it is read once in a test binary, because parsing it in each test uses much CPU time",
	"tooling/charts/pkg/charttest documents":     "they are rendered once in a test binary",
}

// TestPackagesHaveNoState checks that package-level variables are never written after their declaration: they may be tables,
// errors, compiled expressions and embedded files. Mutable state belongs to a value that a constructor returns.
func TestPackagesHaveNoState(t *testing.T) {
	for _, complaint := range stateComplaints(goFiles(t)) {
		t.Error(complaint)
	}
}

// TestStateRuleFindsState runs the rule on declarations that it must reject and on declarations that it must accept.
func TestStateRuleFindsState(t *testing.T) {
	for reason, c := range map[string]struct {
		source string
		wrong  bool
	}{
		"a table is read":          {`var table = map[string]int{"a": 1}; func f() int { return table["a"] }`, false},
		"an embedded file":         {"import _ \"embed\"\n//go:embed x.json\nvar file []byte", false},
		"a local of the same name": {`var x = f(); func g() { x := 1; x++; _ = x }; func h(x int) { x = 2 }`, false},
		"an assertion":             {`var _ = f()`, false},
		"created by a function":    {`var made = func() *sync.Mutex { return new(sync.Mutex) }`, false},
		"assigned":                 {`var x = f(); func g() { x = 2 }`, true},
		"an element is assigned":   {`var x = map[string]int{}; func g() { x["a"] = 2 }`, true},
		"a field is incremented":   {`var x = struct{ n int }{}; func g() { x.n++ }`, true},
		"an element is deleted":    {`var x = map[string]int{}; func g() { delete(x, "a") }`, true},
		"its address is passed on": {`var x = f(); func g() { h(&x) }`, true},
		"declared without a value": {`var x int`, true},
		"a struct with a mutex":    {`var x = struct{ sync.Mutex }{}`, true},
		"an atomic type":           {`var x atomic.Int64 = f()`, true},
		"a channel":                {`var x = make(chan int)`, true},
		"a constant":               {`var x = 5`, true},
	} {
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, "p/p.go", "package p\n"+c.source, parser.ParseComments)
		if err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		complaints := stateComplaints([]goFile{{path: "p/p.go", syntax: syntax, files: set}})
		if (len(complaints) > 0) != c.wrong {
			t.Errorf("%s: %v", reason, complaints)
		}
	}
}

// stateComplaints returns the places where package-level variables hold state.
func stateComplaints(files []goFile) []string {
	var complaints []string
	declared := map[string]bool{} // by folder and name
	for _, file := range files {
		if file.test() || file.generated() {
			continue
		}
		for name, variable := range packageVariables(file) {
			if stateAllowed[file.dir()+" "+name] != "" {
				continue
			}
			declared[file.dir()+" "+name] = true
			if complaint := variable.complaint(); complaint != "" {
				complaints = append(complaints, file.line(variable.spec)+": "+name+" "+complaint)
			}
		}
	}
	for _, file := range files {
		if file.test() || file.generated() {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			for _, written := range writtenBy(node) {
				if dir, name := packageVariable(file, written); declared[dir+" "+name] {
					complaints = append(complaints, file.line(node)+": writes to the package-level variable "+name+": pass mutable state to a constructor")
				}
			}
			return true
		})
	}
	return complaints
}

// variable is the declaration of a package-level variable.
type variable struct {
	spec     *ast.ValueSpec
	value    ast.Expr
	embedded bool
}

// packageVariables returns the package-level variables that a file declares, by name.
func packageVariables(file goFile) map[string]variable {
	found := map[string]variable{}
	for _, declaration := range file.syntax.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			for i, name := range spec.Names {
				if name.Name == "_" { // asserts that a type implements an interface
					continue
				}
				v := variable{spec: spec, embedded: embeds(group.Doc) || embeds(spec.Doc)}
				if i < len(spec.Values) {
					v.value = spec.Values[i]
				}
				found[name.Name] = v
			}
		}
	}
	return found
}

func embeds(comments *ast.CommentGroup) bool {
	if comments == nil {
		return false
	}
	for _, comment := range comments.List {
		if strings.HasPrefix(comment.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// complaint returns why the variable holds state, or an empty string.
func (v variable) complaint() string {
	if v.value == nil && !v.embedded {
		return "is declared without a value, so it must be written later"
	}
	if _, literal := v.value.(*ast.BasicLit); literal {
		return "is a constant"
	}
	complaint := ""
	inspect := func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit: // its body runs later and is checked by writtenBy
			return false
		case *ast.ChanType:
			complaint = "is a channel"
		case *ast.SelectorExpr:
			if name, ok := node.X.(*ast.Ident); ok && (name.Name == "sync" || name.Name == "atomic") {
				complaint = "contains " + name.Name + "." + node.Sel.Name + ", which is mutable"
			}
		}
		return complaint == ""
	}
	if v.spec.Type != nil {
		ast.Inspect(v.spec.Type, inspect)
	}
	if v.value != nil {
		ast.Inspect(v.value, inspect)
	}
	return complaint
}

// writtenBy returns the expressions that a node writes to or takes the address of.
func writtenBy(node ast.Node) []ast.Expr {
	switch node := node.(type) {
	case *ast.AssignStmt:
		if node.Tok != token.DEFINE {
			return node.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{node.X}
	case *ast.RangeStmt:
		if node.Tok == token.ASSIGN {
			return []ast.Expr{node.Key, node.Value}
		}
	case *ast.UnaryExpr:
		if node.Op == token.AND {
			return []ast.Expr{node.X}
		}
	case *ast.CallExpr:
		if name, ok := node.Fun.(*ast.Ident); ok && (name.Name == "delete" || name.Name == "clear" || name.Name == "copy") && len(node.Args) > 0 {
			return node.Args[:1]
		}
	}
	return nil
}

// packageVariable returns the folder and the name of the package-level variable that an expression refers to or is a part
// of, as far as the syntax shows. It returns empty strings if there is none.
func packageVariable(file goFile, expression ast.Expr) (dir, name string) {
	for {
		switch e := expression.(type) {
		case *ast.ParenExpr:
			expression = e.X
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.SelectorExpr:
			if ident, ok := e.X.(*ast.Ident); ok && ident.Obj == nil {
				for _, imported := range file.imports {
					if ours, ok := strings.CutPrefix(imported, modulePrefix); ok && path.Base(ours) == ident.Name {
						return ours, e.Sel.Name
					}
				}
			}
			expression = e.X
		case *ast.Ident:
			if e.Obj != nil { // the parser resolves identifiers of the same file
				spec, ok := e.Obj.Decl.(*ast.ValueSpec)
				if !ok || packageVariables(file)[e.Name].spec != spec {
					return "", ""
				}
			}
			return file.dir(), e.Name
		default:
			return "", ""
		}
	}
}
