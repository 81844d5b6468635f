package definition

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// checker checks relations between files.
type checker struct {
	topology      *Topology
	configuration *schema.Schema
	files         fs.FS
	problems      document.Problems
}

// complain reports a problem of the node at a path within root. at is the path of root in its file.
func (c *checker) complain(root *document.Node, at, within, format string, values ...any) {
	nearest, _ := root.Nearest(document.Split(within)...)
	key := at
	if within != "" {
		key = document.Join(at, within)
	}
	c.problems = append(c.problems, document.Problem{Origin: nearest.Origin, Key: key, Message: fmt.Sprintf(format, values...)})
}

func (s *Step) complain(c *checker, within, format string, values ...any) {
	c.complain(s.node, s.path, within, format, values...)
}

func (c *checker) check() {
	for _, g := range c.topology.Groups {
		c.group(g)
		names := map[string]bool{}
		for _, s := range g.Steps {
			if names[s.Name] {
				s.complain(c, "name", "the step %s exists already in this file", s.Name)
			}
			names[s.Name] = true
			c.step(s)
		}
	}
	if len(c.problems) == 0 {
		c.cycles()
	}
}

func (c *checker) group(g *Group) {
	if g.Parent != nil && g.Parent.Scope.Level() > g.Scope.Level() {
		c.complain(g.node, g.path, "scope", "is %s; the parent %s has the narrower scope %s", g.Scope, g.Parent.Name, g.Parent.Scope)
	}
	for i, name := range g.DependsOn {
		at := "dependsOn." + strconv.Itoa(i)
		switch other := c.topology.Group(name); {
		case other == nil:
			c.complain(g.node, g.path, at, "there is no group %s", name)
		case other == g:
			c.complain(g.node, g.path, at, "the group depends on itself")
		case g.Scope == ScopeEnvironment && other.Scope != ScopeEnvironment:
			c.complain(g.node, g.path, at, "a group of an environment cannot depend on %s, which has the scope %s", name, other.Scope)
		}
	}
}

func (c *checker) step(s *Step) {
	for i, name := range s.DependsOn {
		at := "dependsOn." + strconv.Itoa(i)
		switch other := c.topology.Step(s.Group, name); {
		case other == nil:
			s.complain(c, at, "there is no step %s", name)
		case other == s:
			s.complain(c, at, "the step depends on itself")
		case s.Group.Scope == ScopeEnvironment && other.Group.Scope != ScopeEnvironment:
			s.complain(c, at, "a step of an environment cannot depend on %s, which has the scope %s", other.ID(), other.Group.Scope)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Inputs)) {
		c.input(s, name, s.Inputs[name])
	}
	for i, name := range s.Files {
		if _, err := fs.Stat(c.files, path.Clean(name)); err != nil {
			s.complain(c, "files."+strconv.Itoa(i), "there is no file %s in the checkout", name)
		}
	}
	if s.Rollback && s.Action == "Shell" && s.With["rollbackCommand"] == nil {
		s.complain(c, "rollback", "needs with.rollbackCommand")
	}
	if len(s.DeletionGates) > 0 && s.Group.Scope == ScopeEnvironment {
		s.complain(c, "deletionGates", "only regions and stamps are deleted; the scope of the group is %s", s.Group.Scope)
	}
	switch s.Action {
	case "Helm":
		c.helm(s)
	case "ImageMirror":
		c.imageMirror(s)
	}
	c.references(s)
}

// helm checks what a Helm step needs to roll back.
func (c *checker) helm(s *Step) {
	if s.Rollback && !slices.Contains(s.Outputs, "content") {
		s.complain(c, "rollback", "needs the output content, which identifies the release of the last success")
	}
	text, _ := s.With["readyWithin"].(string)
	within, err := time.ParseDuration(text)
	if err == nil && 4*within > time.Duration(s.Timeout) {
		s.complain(c, "with.readyWithin", "two hooks, an upgrade and its rollback need four times %s; the timeout is %s", within, time.Duration(s.Timeout))
	}
}

func (c *checker) input(s *Step, name string, in Input) {
	at := "inputs." + name
	switch {
	case in.Configuration != "":
		c.key(s, at+".configuration", in.Configuration, false)
	case in.Secret != "":
		c.key(s, at+".secret", in.Secret, true)
	case in.Output != nil:
		other := c.topology.Step(s.Group, in.Output.Step)
		switch {
		case other == nil:
			s.complain(c, at+".output.step", "there is no step %s", in.Output.Step)
		case other == s:
			s.complain(c, at+".output.step", "the step depends on itself")
		case !slices.Contains(other.Outputs, in.Output.Name):
			s.complain(c, at+".output.name", "the step %s has no output %s; it has %s", other.ID(), in.Output.Name, listed(other.Outputs))
		case other.Group.Scope.Level() > s.Group.Scope.Level():
			s.complain(c, at+".output.step", "the step %s has one instance per %s, and this one has one per %s", other.ID(), other.Group.Scope, s.Group.Scope)
		}
	}
}

// key checks a key of the configuration.
func (c *checker) key(s *Step, at, key string, secret bool) {
	parts := document.Split(key)
	for depth := 1; depth < len(parts); depth++ {
		if p := c.configuration.Lookup(parts[:depth]...); p != nil && p.Secret() {
			s.complain(c, at, "%s is a part of a secret; use the key %s as secret", key, strings.Join(parts[:depth], "."))
			return
		}
	}
	p := c.configuration.Lookup(parts...)
	switch {
	case p == nil:
		s.complain(c, at, "the configuration has no key %s", key)
	case p.Secret() && !secret:
		s.complain(c, at, "%s is a secret; use secret instead of configuration", key)
	case !p.Secret() && secret:
		s.complain(c, at, "%s is not a secret; use configuration instead of secret", key)
	case !c.inScope(s.Group.Scope, parts[0], p):
		s.complain(c, at, "%s can differ within the scope of the group, which is %s", key, s.Group.Scope)
	case secretWithin(c.configuration, p, parts):
		s.complain(c, at, "%s contains secrets; use single keys", key)
	}
}

// secretWithin reports whether the content of a key has references to secrets.
func secretWithin(s *schema.Schema, p *schema.Property, path []string) bool {
	for name := range p.Properties {
		at := append(path[:len(path):len(path)], name)
		if child := s.Lookup(at...); child != nil && !p.Secret() && (child.Secret() || secretWithin(s, child, at)) {
			return true
		}
	}
	return false
}

// inScope reports whether a key has one value within a scope.
func (c *checker) inScope(scope Scope, top string, p *schema.Property) bool {
	switch {
	case top == "cloud" || top == "environment":
		return true
	case scope == ScopeEnvironment:
		return p.Level() <= ScopeEnvironment.Level()
	case scope == ScopeRegion:
		return top != "managementCluster" && top != "stamp"
	}
	return top != "managementClusters"
}

// reference is the form of a reference to an input.
var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// References returns the names of the inputs that a text refers to.
func References(text string) []string {
	var names []string
	for _, match := range reference.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// Replace replaces the references in a text. The inputs have all names of References.
func Replace(text string, inputs map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string { return inputs[match[2:len(match)-1]] })
}

// references checks that texts refer to inputs that exist, and that each input is used.
func (c *checker) references(s *Step) {
	used := map[string]bool{}
	var visit func(within string, n *document.Node)
	visit = func(within string, n *document.Node) {
		if n == nil {
			return
		}
		for _, name := range n.Keys() {
			visit(document.Join(within, name), n.Fields[name])
		}
		for i, item := range n.Items {
			visit(document.Join(within, strconv.Itoa(i)), item)
		}
		text, _ := n.Value.(string)
		for _, name := range References(text) {
			used[name] = true
			if _, known := s.Inputs[name]; !known {
				s.complain(c, within, "there is no input %s; inputs are %s", name, listed(slices.Sorted(maps.Keys(s.Inputs))))
			}
		}
	}
	visit("with", s.node.Get("with"))
	visit("gates", s.node.Get("gates"))
	visit("deletionGates", s.node.Get("deletionGates"))
	for _, name := range slices.Sorted(maps.Keys(s.Inputs)) {
		if !used[name] {
			s.complain(c, "inputs."+name, "is not used in with, gates or deletionGates")
		}
	}
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
