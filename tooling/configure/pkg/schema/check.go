package schema

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// CheckLayer checks one layer by itself: unknown keys, kinds of values, keys that this layer may not set, and secrets. Required keys
// and strings with references can be checked only when all layers are merged.
func (s *Schema) CheckLayer(l *layer.Layer) document.Problems {
	c := &layerCheck{schema: s, level: l.Target.Level()}
	c.node(nil, s.top(), l.Root)
	return c.problems
}

type layerCheck struct {
	schema   *Schema
	level    int
	problems document.Problems
}

func (c *layerCheck) complain(path []string, n *document.Node, format string, values ...any) {
	c.problems = append(c.problems, document.Problem{Origin: n.Origin, Key: strings.Join(path, "."), Message: fmt.Sprintf(format, values...)})
}

func (c *layerCheck) node(path []string, p *Property, n *document.Node) {
	if len(path) > 0 && p.Computed {
		c.complain(path, n, "is computed; no layer may set it")
		return
	}
	if p.Secret() && n.Kind != document.Map && n.Kind != document.Deleted {
		c.complain(path, n, "is a secret: it needs a reference {vault: …, secret: …} and must not contain the secret itself")
		return
	}
	if n.Kind != document.Map && c.tooDeep(path, p, n) {
		return
	}
	switch n.Kind {
	case document.Map:
		c.fields(path, p, n)
	case document.List, document.Scalar:
		c.value(path, p, n)
	}
}

// tooDeep reports a value in a layer that may not set it.
func (c *layerCheck) tooDeep(path []string, p *Property, n *document.Node) bool {
	if c.level <= p.Level() {
		return false
	}
	c.complain(path, n, "may be set for %s and outside of it, but not for %s", article(p.Layer), article(layer.Levels[c.level]))
	return true
}

func article(level string) string {
	switch level {
	case layer.Levels[0]:
		return "the defaults"
	case layer.Levels[layer.Environment]:
		return "an environment"
	}
	return "a " + level
}

func (c *layerCheck) fields(path []string, p *Property, n *document.Node) {
	if p.Type != "object" {
		c.complain(path, n, "is a map; it must be %s", typeName(p.Type))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Fields)) {
		field, child := n.Fields[name], c.schema.child(p, name)
		at := append(path[:len(path):len(path)], name)
		if child == nil {
			c.complain(at, field, "unknown key; %s", suggestion(name, slices.Sorted(maps.Keys(p.Properties))))
			continue
		}
		c.node(at, child, field)
	}
}

// value checks a list or a scalar with its part of the schema.
func (c *layerCheck) value(path []string, p *Property, n *document.Node) {
	if c.secretIn(path, n) || hasReferences(n) {
		if text, isText := n.Value.(string); isText && p.Type != "string" && layer.HasReferences(text) {
			c.complain(path, n, "has a reference; it must be %s", typeName(p.Type))
		}
		return
	}
	part, err := c.schema.part(p)
	if err != nil {
		c.complain(path, n, "cannot be checked: %v", err)
		return
	}
	for _, found := range leaves(part.Validate(n.Plain())) {
		if c.schema.inSecret(path) {
			found.message = notAReference
		}
		at := append(path[:len(path):len(path)], found.path...)
		nearest, _ := n.Nearest(found.path...)
		c.complain(at, nearest, "%s", found.message)
	}
}

func typeName(name string) string {
	switch name {
	case "object":
		return "a map"
	case "array":
		return "a list"
	case "integer":
		return "an integer"
	}
	return "a " + name
}

func hasReferences(n *document.Node) bool {
	text, _ := n.Value.(string)
	return layer.HasReferences(text) || slices.ContainsFunc(n.Items, hasReferences) || slices.ContainsFunc(slices.Collect(maps.Values(n.Fields)), hasReferences)
}

// secretForms match texts that are secrets wherever they are: keys in PEM, JSON Web Tokens, connection strings with a key or a
// signature, URLs with a password, keys of Azure's services, and Docker configurations.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.`),
	regexp.MustCompile(`(?i)\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|password)\s*=`),
	regexp.MustCompile(`[?&]sig=[A-Za-z0-9%+/]{20,}`),
	regexp.MustCompile(`://[^/@\s:]*:[^/@\s]+@`),
	regexp.MustCompile(`(?:^|[^A-Za-z0-9+/])[A-Za-z0-9+/]{86}==(?:$|[^=])`),
	regexp.MustCompile(`"auths"\s*:`),
}

// secretIn reports texts that are secrets, without quoting them.
func (c *layerCheck) secretIn(path []string, n *document.Node) bool {
	found := false
	for i, item := range n.Items {
		found = c.secretIn(append(path[:len(path):len(path)], strconv.Itoa(i)), item) || found
	}
	for name, field := range n.Fields {
		found = c.secretIn(append(path[:len(path):len(path)], name), field) || found
	}
	if text, _ := n.Value.(string); LooksLikeSecret(text) {
		c.complain(path, n, "has the form of a secret; store it in a vault and refer to it")
		return true
	}
	return found
}

// LooksLikeSecret reports whether a text has the form of a secret, for example of a private key or a connection string with a key.
func LooksLikeSecret(text string) bool {
	return slices.ContainsFunc(secretForms, func(form *regexp.Regexp) bool { return form.MatchString(text) })
}

// CheckFile checks a file without layers, for example one that refers to keys of the configuration.
func (s *Schema) CheckFile(root *document.Node) document.Problems {
	var problems document.Problems
	for _, found := range leaves(s.compiled.Validate(root.Plain())) {
		nearest, _ := root.Nearest(found.path...)
		problem := document.Problem{Origin: nearest.Origin, Key: strings.Join(found.path, "."), Message: found.message}
		last := len(found.path) - 1
		if found.message == unknownKey {
			if node := root.Get(found.path...); node != nil {
				problem.Origin = node.Origin
			}
			if parent := s.Lookup(found.path[:last]...); parent != nil && len(parent.Properties) > 0 {
				problem.Message += "; " + suggestion(found.path[last], slices.Sorted(maps.Keys(parent.Properties)))
			}
		}
		problems = append(problems, problem)
	}
	return problems
}

// Check checks the merged values of a target. Errors about missing keys name the innermost layer that may set them, which origin
// returns.
func (s *Schema) Check(merged *document.Node, origin func(level int) document.Origin) document.Problems {
	var problems document.Problems
	for _, found := range leaves(s.compiled.Validate(merged.Plain())) {
		nearest, _ := merged.Nearest(found.path...)
		problem := document.Problem{Origin: nearest.Origin, Key: strings.Join(found.path, "."), Message: found.message}
		if found.missing {
			problem.Message += ", and no layer sets it"
		}
		if p := s.Lookup(found.path...); found.missing && p != nil {
			problem.Origin = origin(p.Level())
		}
		if s.inSecret(found.path) && !found.missing {
			problem.Message = notAReference
		}
		problems = append(problems, problem)
	}
	return problems
}

// notAReference is the message for every error within a reference to a secret, because the value may be the secret.
const notAReference = "is not part of a reference to a secret, {vault: …, secret: …}, with the name of a vault and lower-case letters, digits and '-'"

// inSecret reports whether a path is that of a reference to a secret or a part of one.
func (s *Schema) inSecret(path []string) bool {
	for depth := range len(path) + 1 {
		if p := s.Lookup(path[:depth]...); p != nil && p.Secret() {
			return true
		}
	}
	return false
}

const unknownKey = "unknown key"

// leaf is one error of the validator.
type leaf struct {
	path    []string
	message string
	missing bool
}

// leaves returns the innermost errors of a validation.
func leaves(err error) []leaf {
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return nil
	}
	if len(failed.Causes) > 0 {
		var all []leaf
		for _, cause := range failed.Causes {
			all = append(all, leaves(cause)...)
		}
		return all
	}
	var all []leaf
	switch problem := failed.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range problem.Missing {
			all = append(all, leaf{append(slices.Clone(failed.InstanceLocation), name), "is required", true})
		}
	case *kind.AdditionalProperties:
		for _, name := range problem.Properties {
			all = append(all, leaf{append(slices.Clone(failed.InstanceLocation), name), unknownKey, false})
		}
	case *kind.Type:
		all = append(all, leaf{failed.InstanceLocation, "is " + typeName(problem.Got) + "; it must be " + typeName(problem.Want[0]), false})
	case *kind.FalseSchema:
		all = append(all, leaf{failed.InstanceLocation, "is not allowed with the values of the keys beside it", false})
	case *kind.Pattern:
		all = append(all, leaf{failed.InstanceLocation, fmt.Sprintf("%q does not match %s", problem.Got, problem.Want), false})
	default:
		all = append(all, leaf{failed.InstanceLocation, failed.ErrorKind.LocalizedString(message.NewPrinter(language.English)), false})
	}
	return all
}

// suggestion names the known key that differs least from an unknown one, or all known keys.
func suggestion(name string, known []string) string {
	best, distance := "", 3
	for _, candidate := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known keys are " + strings.Join(known, ", ")
}

// editDistance returns the number of insertions, deletions and replacements that change a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
