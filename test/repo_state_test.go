package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// stateAllowed are the package-level variables that hold state all the same, with the reason.
var stateAllowed = map[string]string{
	"maestro/agent globals": "the work agent's library keeps its feature gates and intervals in package variables, which may be set once",
}

// TestNoPackageKeepsState checks that what a package declares at its top is written there and nowhere else: tables, errors,
// compiled expressions, embedded files. What changes belongs to a value that somebody made and passes on.
func TestNoPackageKeepsState(t *testing.T) {
	for _, complaint := range stateComplaints(goFiles(t)) {
		t.Error(complaint)
	}
}

// TestTheRuleOnStateBites tries the rule on what it must find and what it must let pass.
func TestTheRuleOnStateBites(t *testing.T) {
	for reason, c := range map[string]struct {
		source string
		wrong  bool
	}{
		"a table is read":              {`var table = map[string]int{"a": 1}; func f() int { return table["a"] }`, false},
		"an embedded file":             {"import _ \"embed\"\n//go:embed x.json\nvar file []byte", false},
		"a local of the same name":     {`var x = f(); func g() { x := 1; x++; _ = x }; func h(x int) { x = 2 }`, false},
		"an assertion":                 {`var _ = f()`, false},
		"what a function makes itself": {`var made = func() *sync.Mutex { return new(sync.Mutex) }`, false},
		"assigned":                     {`var x = f(); func g() { x = 2 }`, true},
		"an element is assigned":       {`var x = map[string]int{}; func g() { x["a"] = 2 }`, true},
		"a field is counted up":        {`var x = struct{ n int }{}; func g() { x.n++ }`, true},
		"an element is deleted":        {`var x = map[string]int{}; func g() { delete(x, "a") }`, true},
		"its address is given away":    {`var x = f(); func g() { h(&x) }`, true},
		"declared for later":           {`var x int`, true},
		"made to change":               {`var x = struct{ sync.Mutex }{}`, true},
		"made to change, by its type":  {`var x atomic.Int64 = f()`, true},
		"a channel":                    {`var x = make(chan int)`, true},
		"a constant":                   {`var x = 5`, true},
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

// stateComplaints says where package-level variables hold state.
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
					complaints = append(complaints, file.line(node)+": writes to the package's variable "+name+": what changes is passed to a constructor")
				}
			}
			return true
		})
	}
	return complaints
}

// variable is a package-level one.
type variable struct {
	spec     *ast.ValueSpec
	value    ast.Expr
	embedded bool
}

// packageVariables are the variables that a file declares at its top, by name.
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

// complaint says what makes a variable's declaration one of state; empty when nothing does.
func (v variable) complaint() string {
	if v.value == nil && !v.embedded {
		return "is declared without a value: somebody must write it later"
	}
	if _, literal := v.value.(*ast.BasicLit); literal {
		return "is a constant"
	}
	complaint := ""
	look := func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit: // what a function does when it is called is not the variable's
			return false
		case *ast.ChanType:
			complaint = "is a channel"
		case *ast.SelectorExpr:
			if name, ok := node.X.(*ast.Ident); ok && (name.Name == "sync" || name.Name == "atomic") {
				complaint = "holds " + name.Name + "." + node.Sel.Name + ", which is made to change"
			}
		}
		return complaint == ""
	}
	if v.spec.Type != nil {
		ast.Inspect(v.spec.Type, look)
	}
	if v.value != nil {
		ast.Inspect(v.value, look)
	}
	return complaint
}

// writtenBy are the expressions that a node writes to, or lets others write to.
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

// packageVariable is the folder and the name of the package-level variable that an expression is, or is a part of, as far
// as the syntax tells; empty when it is none.
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
			if e.Obj != nil { // the parser has resolved what stands in the same file
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
