package definition

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

//go:embed topology.schema.json
var topologySchema []byte

//go:embed pipeline.schema.json
var pipelineSchema []byte

// Open reads the topology and all pipelines of a checkout and checks them with the schema of the configuration. All problems of the
// files are returned together, as document.Problems.
func Open(root string, configuration *schema.Schema) (*Topology, error) {
	r := &reader{files: os.DirFS(root)}
	t, err := r.topology()
	if err != nil {
		return nil, err
	}
	c := &checker{topology: t, configuration: configuration, files: r.files}
	for _, g := range t.Groups {
		if err := r.pipeline(g); err != nil {
			return nil, err
		}
	}
	if len(r.problems) == 0 {
		c.check()
	}
	return t, append(r.problems, c.problems...).Err()
}

// reader reads files and collects their problems.
type reader struct {
	files    fs.FS
	problems document.Problems
}

// read parses a file and checks it with a JSON Schema. It returns nil if the file has problems.
func (r *reader) read(name string, schemaText []byte, at document.Origin, key string) (*document.Node, error) {
	text, err := fs.ReadFile(r.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		r.problems = append(r.problems, document.Problem{Origin: at, Key: key, Message: "there is no file " + name})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	s, err := schema.Parse(schemaText)
	if err != nil {
		return nil, err
	}
	root, problems := document.Parse(document.Origin{File: name}, text)
	if len(problems) == 0 {
		problems = append(secrets("", root), s.CheckFile(root)...)
	}
	r.problems = append(r.problems, problems...)
	if len(problems) > 0 {
		return nil, nil
	}
	return root, nil
}

// secrets reports texts with the form of a secret, without quoting them.
func secrets(path string, n *document.Node) document.Problems {
	var problems document.Problems
	for name, field := range n.Fields {
		problems = append(problems, secrets(document.Join(path, name), field)...)
	}
	for i, item := range n.Items {
		problems = append(problems, secrets(document.Join(path, strconv.Itoa(i)), item)...)
	}
	if text, _ := n.Value.(string); schema.LooksLikeSecret(text) {
		problems = append(problems, document.Problem{Origin: n.Origin, Key: path, Message: "has the form of a secret; store it in a vault and use an input with secret"})
	}
	return problems
}

// decode converts a tree that its schema accepted.
func decode(n *document.Node, into any) error {
	text, err := json.Marshal(n.Plain())
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.Origin.File, err)
	}
	return nil
}

func (r *reader) topology() (*Topology, error) {
	t := &Topology{byName: map[string]*Group{}}
	root, err := r.read(TopologyFile, topologySchema, document.Origin{File: TopologyFile}, "")
	if root == nil {
		return t, err
	}
	var file struct {
		Groups []*Group `json:"groups"`
	}
	if err := decode(root, &file); err != nil {
		return nil, err
	}
	r.add(t, nil, file.Groups, root.Get("groups"), "groups")
	return t, nil
}

// add appends groups and their children to the topology.
func (r *reader) add(t *Topology, parent *Group, groups []*Group, list *document.Node, path string) {
	for i, g := range groups {
		g.Parent, g.node, g.path = parent, list.Items[i], document.Join(path, strconv.Itoa(i))
		if first := t.byName[g.Name]; first != nil {
			r.problems = append(r.problems, document.Problem{Origin: g.node.Get("name").Origin, Key: document.Join(g.path, "name"),
				Message: fmt.Sprintf("the group %s exists already (%s)", g.Name, first.node.Get("name").Origin)})
			continue
		}
		t.byName[g.Name] = g
		t.Groups = append(t.Groups, g)
		if len(g.Children) > 0 {
			r.add(t, g, g.Children, g.node.Get("children"), document.Join(g.path, "children"))
		}
	}
}

// pipeline reads the pipeline of a group.
func (r *reader) pipeline(g *Group) error {
	root, err := r.read(filepath.ToSlash(g.File), pipelineSchema, g.node.Get("pipeline").Origin, document.Join(g.path, "pipeline"))
	if root == nil {
		return err
	}
	var file struct {
		Group string  `json:"group"`
		Steps []*Step `json:"steps"`
	}
	if err := decode(root, &file); err != nil {
		return err
	}
	if file.Group != g.Name {
		r.problems = append(r.problems, document.Problem{Origin: root.Get("group").Origin, Key: "group",
			Message: fmt.Sprintf("is %s; %s names this file for the group %s", file.Group, g.node.Get("pipeline").Origin, g.Name)})
	}
	for i, s := range file.Steps {
		s.Group, s.node, s.path = g, root.Get("steps", strconv.Itoa(i)), "steps."+strconv.Itoa(i)
	}
	g.Steps = file.Steps
	return nil
}
