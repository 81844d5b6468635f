package test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// bannedWord is an expression that never belongs in comments, strings, identifiers or documents of this repository.
type bannedWord struct {
	expression *regexp.Regexp
	// literals are texts in lower case of which each match contains one. They save the search for the expression in nearly all texts. nil means that there are none.
	literals []string
	instead  string
}

// banned lists private words and idioms that hide the actor or the standard term. CONTRIBUTING.md has the style guide.
// Words that are right in some sentences, such as "whose", are left to review.
var banned = []bannedWord{
	ban(`anew`, "again, or the concrete verb: retry, restart, re-list"),
	ban(`again and again`, "repeatedly, or the interval"),
	ban(`doom|doomed|dooms`, "mark for deletion, deletion cascade"),
	ban(`errand|errands`, "one-shot operation"),
	ban(`strangers?`, "unknown bundle, unknown"),
	ban(`acquainted`, "known"),
	ban(`beneath`, "children, dependents, below"),
	ban(`mend|mends|mended|mending`, "repair, fix"),
	ban(`households?`, "repository"),
	ban(`rules of the house`, "rules of the repository"),
	ban(`tenanc(?:y|ies)`, "cluster aggregate"),
	ban(`interventions?`, "action"),
	ban(`whom`, "name the object"),
	ban(`(?:is|are|was|were|be|being|been) told`, "returns, reports, is notified"),
	ban(`is heard|was heard|hears|has heard`, "receives"),
	ban(`lets? (?:in|nobody)`, "accepts, rejects"),
	ban(`says (?:what|whether|who|why|how|when|which|that|so)`, "reports, returns, states"),
	ban(`looks (?:at|for|into|whether)`, "reads, checks, searches"),
	ban(`in thought`, "simulated, computed"),
	ban(`for good`, "permanently"),
	ban(`such as it is`, "name the state"),
	ban(`what is (?:next|left|kept|asked|wanted)`, "name the object"),
	ban(`there is nobody|is nobody's`, "name the state"),
	ban(`came of it|became of (?:it|them)|comes of it|becomes of (?:it|them)`, "outcome, result"),
	ban(`ever (?:more|so)`, "increasingly"),
	ban(`taken in|takes in`, "accepts, includes"),
}

func ban(words, instead string) bannedWord {
	expression := regexp.MustCompile(`(?i)\b(?:` + words + `)\b`)
	parsed, _ := syntax.Parse(expression.String(), syntax.Perl) // it was compiled
	return bannedWord{expression, literals(parsed), instead}
}

// literals returns texts in lower case of which each match of an expression contains one.
func literals(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture:
		return literals(re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, alternative := range re.Sub {
			one := literals(alternative)
			if one == nil {
				return nil
			}
			all = append(all, one...)
		}
		return all
	case syntax.OpConcat:
		// The part whose shortest text is the longest is the rarest.
		var rarest []string
		shortest := func(all []string) int {
			n := 0
			for i, text := range all {
				if i == 0 || len(text) < n {
					n = len(text)
				}
			}
			return n
		}
		for _, part := range re.Sub {
			if one := literals(part); shortest(one) > shortest(rarest) {
				rarest = one
			}
		}
		return rarest
	}
	return nil
}

// bannedAllowed lists the exceptions: a file or folder, a space, and the matched text in lower case, with the reason.
var bannedAllowed = map[string]string{
	"test/repo_language_test.go *": "this table",
}

// bannedIn returns the first banned expression that text contains.
func bannedIn(text string) (match string, word bannedWord, found bool) {
	lower := strings.ToLower(text)
	for _, word := range banned {
		if word.literals != nil && !slices.ContainsFunc(word.literals, func(literal string) bool { return strings.Contains(lower, literal) }) {
			continue
		}
		if match := word.expression.FindString(text); match != "" {
			return strings.ToLower(match), word, true
		}
	}
	return "", bannedWord{}, false
}

// allowedByException reports whether an exception covers the match, and records its use.
func allowedByException(name, match string, used map[string]bool) bool {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		for _, key := range []string{dir + " " + match, dir + " *"} {
			if bannedAllowed[key] != "" {
				used[key] = true
				return true
			}
		}
	}
	return false
}

// TestLanguageIsPlain rejects banned words in Go comments, string literals and identifiers, and in the lines of documents,
// interface definitions and scripts. It prints the exceptions, of which there may be fewer than 20.
func TestLanguageIsPlain(t *testing.T) {
	used := map[string]bool{}
	plain := map[string]bool{} // identifiers and literals occur many times
	complain := func(name string, line int, text string) {
		if plain[text] {
			return
		}
		match, word, found := bannedIn(text)
		plain[text] = !found
		if found && !allowedByException(name, match, used) {
			t.Errorf("%s:%d: %q: use %s", name, line, match, word.instead)
		}
	}
	for _, file := range goFiles(t) {
		if file.generated() {
			continue
		}
		lineOf := func(node ast.Node) int { return file.files.Position(node.Pos()).Line }
		for _, group := range file.syntax.Comments {
			complain(file.path, lineOf(group), strings.Join(strings.Fields(group.Text()), " ")) // an idiom can span lines
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.BasicLit:
				complain(file.path, lineOf(node), node.Value)
			case *ast.Ident:
				complain(file.path, lineOf(node), splitIdentifier(node.Name))
			}
			return true
		})
		complain(file.path, 1, strings.ReplaceAll(strings.TrimSuffix(path.Base(file.path), ".go"), "_", " "))
	}
	walk(t, func(name string) {
		switch path.Ext(name) {
		case ".md", ".proto", ".tsp", ".sh", ".mjs", ".yaml", ".sql":
		default:
			return
		}
		if path.Base(name) == "package-lock.json" {
			return
		}
		text := must.Get(os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name))))(t)
		for i, line := range strings.Split(string(text), "\n") {
			complain(name, i+1, line)
		}
	})
	for key, reason := range bannedAllowed {
		if !used[key] {
			t.Errorf("exception %q (%s) matches nothing: remove it", key, reason)
		}
		t.Logf("exception: %s: %s", key, reason)
	}
	if len(bannedAllowed) >= 20 {
		t.Errorf("%d exceptions; there may be fewer than 20", len(bannedAllowed))
	}
}

// TestLanguageRuleFindsBannedWords runs the rule on text that it must reject and on text that it must accept.
func TestLanguageRuleFindsBannedWords(t *testing.T) {
	for text, want := range map[string]string{
		"the cluster is doomed":                     "doomed",
		splitIdentifier("strangerBundle"):           "stranger",
		splitIdentifier("StartAnew"):                "anew",
		"It says whether the work is there":         "says whether",
		"the recommendation that amendments follow": "",
		"documents whose TTL has ended":             "",
		splitIdentifier("renewal"):                  "",
	} {
		if match, _, _ := bannedIn(text); match != want {
			t.Errorf("bannedIn(%q) = %q, want %q", text, match, want)
		}
	}
}

// splitIdentifier returns the words of an identifier, separated by spaces.
func splitIdentifier(name string) string {
	var words strings.Builder
	previous := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && !unicode.IsUpper(previous) {
			words.WriteRune(' ')
		}
		if r == '_' {
			r = ' '
		}
		words.WriteRune(r)
		previous = r
	}
	return words.String()
}

// TestDocCommentsBeginWithTheName checks the doc comments of exported functions, methods and types, and of exported
// constants and variables that are declared alone, as go doc and readers expect it.
func TestDocCommentsBeginWithTheName(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.generated() || file.test() {
			continue
		}
		for _, complaint := range docComplaints(file) {
			t.Error(complaint)
		}
	}
}

func docComplaints(file goFile) []string {
	var complaints []string
	check := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if !name.IsExported() {
			return
		}
		for _, doc := range docs {
			if doc != nil && !beginsWithName(doc.Text(), name.Name) {
				complaints = append(complaints, fmt.Sprintf("%s: the doc comment of %s does not begin with its name", file.line(doc), name.Name))
			}
		}
	}
	for _, declaration := range file.syntax.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			check(declaration.Name, declaration.Doc)
		case *ast.GenDecl:
			alone := !declaration.Lparen.IsValid()
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if alone {
						check(spec.Name, declaration.Doc)
					}
					check(spec.Name, spec.Doc)
				case *ast.ValueSpec:
					if alone && len(spec.Names) == 1 {
						check(spec.Names[0], declaration.Doc)
					}
				}
			}
		}
	}
	return complaints
}

var docArticle = regexp.MustCompile(`^(?:An?|The) `)

func beginsWithName(doc, name string) bool {
	doc = docArticle.ReplaceAllString(doc, "")
	if strings.HasPrefix(doc, "Deprecated:") {
		return true
	}
	rest, ok := strings.CutPrefix(doc, name)
	return ok && (rest == "" || !unicode.IsLetter([]rune(rest)[0]))
}

// logMethods are the methods of slog.Logger that take keys and values, with the index of the first key.
var logMethods = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3,
}

// slogAttributes are the functions of package slog that make an attribute from a key.
var slogAttributes = map[string]bool{
	"String": true, "Int": true, "Int64": true, "Uint64": true, "Float64": true, "Bool": true,
	"Time": true, "Duration": true, "Any": true, "Group": true,
}

// TestLogsUseKnownKeys rejects log records with keys that are not constants of internal/logkey, and calls of slog's global
// logger: loggers are passed in.
func TestLogsUseKnownKeys(t *testing.T) {
	for _, file := range goFiles(t) {
		if file.test() || file.generated() || file.under("internal/testing") {
			continue
		}
		for _, complaint := range logComplaints(file) {
			t.Error(complaint)
		}
	}
}

func logComplaints(file goFile) []string {
	var complaints []string
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver := receiverName(function.X)
		if receiver == "slog" {
			if slogAttributes[function.Sel.Name] && len(call.Args) > 0 {
				complaints = append(complaints, keyComplaint(file, call.Args[0])...)
			}
			if _, global := logMethods[function.Sel.Name]; global || function.Sel.Name == "Default" || function.Sel.Name == "SetDefault" && !file.under("internal/process") {
				complaints = append(complaints, fmt.Sprintf("%s: slog.%s uses the global logger: pass a logger in", file.line(call), function.Sel.Name))
			}
			return true
		}
		first, logs := logMethods[function.Sel.Name]
		if !logs || !strings.HasSuffix(strings.ToLower(receiver), "log") && !strings.HasSuffix(strings.ToLower(receiver), "logger") {
			return true
		}
		for i := first; i < len(call.Args); i += 2 {
			if _, attribute := call.Args[i].(*ast.CallExpr); attribute {
				i-- // slog.String and the like take one place
				continue
			}
			complaints = append(complaints, keyComplaint(file, call.Args[i])...)
		}
		return true
	})
	return complaints
}

// receiverName returns the last name of the expression that a method is called on.
func receiverName(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.Ident:
		return expression.Name
	case *ast.SelectorExpr:
		return expression.Sel.Name
	case *ast.CallExpr: // log.With(…).Info(…)
		if function, ok := expression.Fun.(*ast.SelectorExpr); ok {
			return receiverName(function.X)
		}
	}
	return ""
}

func keyComplaint(file goFile, key ast.Expr) []string {
	if literal, ok := key.(*ast.BasicLit); ok {
		value, _ := strconv.Unquote(literal.Value)
		return []string{fmt.Sprintf("%s: log key %q: use a constant of internal/logkey", file.line(key), value)}
	}
	return nil
}
