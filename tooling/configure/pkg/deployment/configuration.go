// Package deployment computes the configuration of each region and stamp from its layers, and checks it.
//
// Render merges the layers of a target, replaces references, validates the result against the schema and evaluates the rules. The
// result of a region contains its stamps, so that one document configures the services of the region. CheckAll also checks relations
// between regions. The package reads files and has no other effects, except Write, which replaces rendered files.
//
// A Rule checks relations between keys with a CEL expression, for example that the name of a certificate belongs to the region's DNS zone.
// The schema checks single keys. An expression sees each top-level key as a variable, which is null if no layer sets the key. Besides CEL's
// standard functions and string extensions it can use cidrContains(outer, inner) and cidrsOverlap(a, b). The cost of an expression is limited.
package deployment

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// The files of a configuration, besides those of its layers.
const (
	SchemaFile = "config.schema.json"
	RulesFile  = "rules.yaml"
)

// The keys of a stamp and of the list of a region's stamps.
const (
	stampKey  = "managementCluster"
	stampsKey = "managementClusters"
)

// Configuration is a folder with layers, a schema and rules.
type Configuration struct {
	Tree   *layer.Tree
	Schema *schema.Schema
	Rules  []*Rule
	// Problems are those of single files. A target whose layers have some of them must not be rendered.
	Problems document.Problems
	dir      string
}

// Open reads a folder. It returns an error if the schema or the rules are unusable; wrong layers are Problems.
func Open(dir string) (*Configuration, error) {
	c := &Configuration{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, SchemaFile))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if c.Schema, err = schema.Parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, SchemaFile), err)
	}
	if text, err = os.ReadFile(filepath.Join(dir, RulesFile)); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if c.Rules, err = parseRules(text, c.Schema.Top()); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, RulesFile), err)
	}
	if c.Tree, c.Problems, err = layer.Read(os.DirFS(dir), filepath.ToSlash(dir)); err != nil {
		return nil, err
	}
	for _, l := range c.Tree.All() {
		c.Problems = append(c.Problems, c.Schema.CheckLayer(l)...)
	}
	return c, nil
}

// Targets returns all regions and stamps within a path of names, in order. An empty path means all.
func (c *Configuration) Targets(within layer.Target) []layer.Target {
	targets := slices.Concat(c.Tree.At(layer.Region, within), c.Tree.At(layer.Stamp, within))
	slices.SortFunc(targets, slices.Compare)
	return targets
}

// Merge returns the merged values of a target with references replaced. The schema and the rules are not checked.
func (c *Configuration) Merge(target layer.Target) (*document.Node, document.Problems, error) {
	merged, problems, err := c.Tree.Merge(target)
	if err != nil || len(problems) > 0 {
		return merged, problems, err
	}
	if target.Level() == layer.Stamp {
		resolved, more := layer.Resolve(merged)
		return resolved, more, nil
	}
	delete(merged.Fields, stampKey) // a stamp has the names that this part refers to
	resolved, problems := layer.Resolve(merged)
	if target.Level() != layer.Region {
		return resolved, problems, nil
	}
	list := &document.Node{Kind: document.List, Items: []*document.Node{}, Origin: c.Tree.Origin(target, layer.Region)}
	for _, stamp := range c.Tree.At(layer.Stamp, target) {
		values, more, err := c.Merge(stamp)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, more...)
		if cluster := values.Get(stampKey); cluster != nil {
			list.Items = append(list.Items, cluster)
		}
	}
	resolved.Fields[stampsKey] = list
	return resolved, problems, nil
}

// Render returns the configuration of a region or stamp, or the problems of its layers, its values and its rules.
func (c *Configuration) Render(target layer.Target) (*document.Node, error) {
	if target.Level() < layer.Region {
		return nil, fmt.Errorf("%w: %s is not a region or a stamp: use CLOUD/ENVIRONMENT/REGION[/STAMP]", layer.ErrUnknown, target)
	}
	if _, err := c.Tree.Layers(target); err != nil {
		return nil, err
	}
	if problems := c.problemsOf(target); len(problems) > 0 {
		return nil, problems.Err()
	}
	values, problems, err := c.Merge(target)
	if err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		problems = c.Schema.Check(values, func(level int) document.Origin { return c.Tree.Origin(target, level) })
	}
	if len(problems) == 0 {
		problems = checkRules(c.Rules, values, target.Level() == layer.Stamp)
	}
	return values, problems.Err()
}

// problemsOf returns the problems of the files of a target and of its stamps.
func (c *Configuration) problemsOf(target layer.Target) document.Problems {
	files := map[string]bool{}
	for _, t := range append(c.Tree.At(layer.Stamp, target), target) {
		for _, name := range c.Tree.Files(t) {
			files[name] = true
		}
	}
	var found document.Problems
	for _, problem := range c.Problems {
		if files[problem.Origin.File] {
			found = append(found, problem)
		}
	}
	return found
}

// CheckAll renders the targets and checks names that must be unique. The error lists the problems of all targets; each is named once.
func (c *Configuration) CheckAll() (map[string]*document.Node, error) {
	problems := slices.Clone(c.Problems)
	rendered := map[string]*document.Node{}
	if len(problems) > 0 {
		return nil, problems.Err()
	}
	for _, target := range c.Targets(nil) {
		values, err := c.Render(target)
		if found, ok := err.(document.Problems); ok {
			problems = append(problems, found...)
			continue
		}
		if err != nil {
			return nil, err
		}
		rendered[target.String()] = values
	}
	if len(problems) == 0 {
		problems = c.duplicates(rendered)
	}
	return rendered, problems.Err()
}

// duplicates returns the names that two units share although the schema has x-unique for them.
func (c *Configuration) duplicates(rendered map[string]*document.Node) document.Problems {
	type use struct {
		unit layer.Target
		key  string
		node *document.Node
	}
	var problems document.Problems
	c.Schema.Walk(func(path []string, p *schema.Property) {
		if p.Unique == "" || slices.Contains(path, "[]") {
			return
		}
		uses := map[string]use{}
		for _, name := range slices.Sorted(maps.Keys(rendered)) {
			target, _ := layer.ParseTarget(name)
			if !owns(target, path[0]) {
				continue
			}
			for _, found := range expand(rendered[name], path) {
				// A key that only outer layers may set has one value per outer unit, for example the registry of an environment.
				unit := target[:min(p.Level(), target.Level())]
				scope := target[:1]
				if p.Unique == schema.UniqueInEnvironment {
					scope = target[:layer.Environment]
				}
				id := scope.String() + " " + fmt.Sprint(found.node.Value)
				first, taken := uses[id]
				switch {
				case !taken:
					uses[id] = use{unit, found.key, found.node}
				case !slices.Equal(first.unit, unit):
					problems = append(problems, document.Problem{Origin: found.node.Origin, Key: found.key,
						Message: fmt.Sprintf("%v of %s is also the value of %s (%s); the %s must be unique", found.node.Value, unit, first.unit, first.node.Origin, p.Unique)})
				}
			}
		}
	})
	return problems
}

// owns reports whether a top-level key belongs to the target itself. The document of a stamp also contains the keys of its region.
func owns(target layer.Target, key string) bool {
	return (key == stampKey) == (target.Level() == layer.Stamp)
}

// Owners returns the targets that a top-level key belongs to: all stamps or all regions.
func (c *Configuration) Owners(key string) []layer.Target {
	return slices.DeleteFunc(c.Targets(nil), func(target layer.Target) bool { return !owns(target, key) })
}

// found is a value with its path.
type found struct {
	key  string
	node *document.Node
}

// expand returns the values at a path of the schema, in which <name> is any key.
func expand(root *document.Node, path []string) []found {
	values := []found{{"", root}}
	for _, step := range path {
		var next []found
		for _, value := range values {
			names := []string{step}
			if step == "<name>" {
				names = value.node.Keys()
			}
			for _, name := range names {
				if node := value.node.Get(name); node != nil {
					next = append(next, found{document.Join(value.key, name), node})
				}
			}
		}
		values = next
	}
	return values
}

// Missing returns the keys with x-deploy that a target lacks, for example the digests of images that were not built yet. A target
// with such keys can be rendered but not deployed.
func (c *Configuration) Missing(target layer.Target, values *document.Node) document.Problems {
	var problems document.Problems
	c.Schema.Walk(func(path []string, p *schema.Property) {
		if !p.Deploy {
			return
		}
		parent, last := path[:len(path)-1], path[len(path)-1]
		for _, value := range expand(values, parent) {
			if value.node.Get(last) == nil {
				problems = append(problems, document.Problem{Origin: c.Tree.Origin(target, p.Level()), Key: document.Join(value.key, last),
					Message: "is required for a deployment, and no layer sets it"})
			}
		}
	})
	return problems
}

// YAML returns rendered values as YAML with sorted keys.
func YAML(values *document.Node) ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(values.Plain()); err != nil {
		return nil, fmt.Errorf("writing rendered values: %w", err)
	}
	return text.Bytes(), encoder.Close()
}

// String returns the leaves of a value in one line, for tables.
func String(n *document.Node) string {
	switch n.Kind {
	case document.Deleted:
		return "null"
	case document.Map:
		var fields []string
		for _, key := range n.Keys() {
			fields = append(fields, key+": "+String(n.Fields[key]))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case document.List:
		var items []string
		for _, item := range n.Items {
			items = append(items, String(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(n.Value)
}
