// Package charttest renders the charts of the repository for tests, with the configuration of every region. Digests of images and outputs
// of the infrastructure, which do not exist before a deployment, are made up from names, so that they are always the same.
package charttest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// Root returns the root of the repository.
func Root(t testing.TB) string {
	t.Helper()
	root, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return chart.Root(dir)
}

// configuration and documents are read once: checking the schema and the rules of all targets takes seconds.
var (
	configuration = sync.OnceValues(func() (*deployment.Configuration, error) {
		root, err := checkout()
		if err != nil {
			return nil, err
		}
		return deployment.Open(filepath.Join(root, "config"))
	})
	documents = sync.OnceValues(func() ([]*document.Node, error) {
		c, err := configuration()
		if err != nil {
			return nil, err
		}
		var all []*document.Node
		for _, name := range c.Targets(nil) {
			rendered, err := c.Render(name)
			if err != nil {
				return nil, err
			}
			all = append(all, rendered)
		}
		return all, nil
	})
)

// Configuration returns the configuration of the repository. Tests share it and must not change it.
func Configuration(t testing.TB) *deployment.Configuration {
	t.Helper()
	c, err := configuration()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Targets returns all regions and stamps, each with made-up digests and outputs. The test may change them.
func Targets(t testing.TB) []values.Target {
	t.Helper()
	c := Configuration(t)
	rendered, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	var targets []values.Target
	for i, name := range c.Targets(nil) {
		targets = append(targets, Complete(name, c.Schema, rendered[i]))
	}
	return targets
}

// Complete returns a target with a digest for every image, and a client ID and an object ID for every managed identity of a rendered document.
// The addresses are those of a range for documentation.
func Complete(name layer.Target, s *schema.Schema, rendered *document.Node) values.Target {
	clients, objects := map[string]string{}, map[string]string{}
	for _, identity := range values.Identities(rendered) {
		clients[identity], objects[identity] = madeUpID(identity), madeUpID("object of "+identity)
	}
	return values.Target{Name: name.String(), Schema: s, Configuration: completed(rendered, ""), ClientIDs: clients, ObjectIDs: objects,
		EgressAddresses: []string{"198.51.100.2", "198.51.100.3"}}
}

// completed returns a copy with digests.
func completed(n *document.Node, key string) *document.Node {
	made := *n
	made.Fields, made.Items = map[string]*document.Node{}, nil
	for name, field := range n.Fields {
		made.Fields[name] = completed(field, name)
	}
	for _, item := range n.Items {
		made.Items = append(made.Items, completed(item, ""))
	}
	if key == "image" && n.Kind == document.Map {
		made.Fields["digest"] = &document.Node{Kind: document.Scalar, Value: digest(fmt.Sprint(n.Get("repository").Value)), Origin: n.Origin}
	}
	return &made
}

func digest(repository string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(repository)))
}

func madeUpID(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// Render returns the objects of a workload in a target.
func Render(t testing.TB, w workload.Workload, target values.Target) chart.Objects {
	t.Helper()
	loaded, err := chart.Load(filepath.Join(Root(t), filepath.FromSlash(w.Folder)))
	if err != nil {
		t.Fatal(err)
	}
	v, err := values.Of(w, target)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := loaded.Render(string(w.Peer), v)
	if err != nil {
		t.Fatalf("%s: %v", target.Name, err)
	}
	return objects
}

// Platforms returns the charts of the cluster of a target.
func Platforms(target values.Target) []values.Platform {
	var found []values.Platform
	for _, p := range values.Platforms() {
		if p.Applies(target) {
			found = append(found, p)
		}
	}
	return found
}

// RenderPlatform returns the objects of a chart of a cluster.
func RenderPlatform(t testing.TB, p values.Platform, target values.Target) chart.Objects {
	t.Helper()
	loaded, err := chart.Load(filepath.Join(Root(t), filepath.FromSlash(p.Folder())))
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Values(target)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := loaded.Render(p.Namespace, v)
	if err != nil {
		t.Fatalf("%s: %v", target.Name, err)
	}
	return objects
}

// RenderAll returns the objects of all charts of a target, by name of the chart.
func RenderAll(t testing.TB, target values.Target) map[string]chart.Objects {
	t.Helper()
	all := map[string]chart.Objects{}
	for _, p := range Platforms(target) {
		all[p.Name] = RenderPlatform(t, p, target)
	}
	for _, w := range workload.All() {
		if values.Applies(w, target) {
			all[string(w.Peer)] = Render(t, w, target)
		}
	}
	return all
}

// Set sets or, with nil, removes a field of maps and lists. A list has its indexes as keys.
func Set(t testing.TB, at any, path []string, value any) {
	t.Helper()
	switch node := at.(type) {
	case map[string]any:
		if len(path) > 1 {
			Set(t, node[path[0]], path[1:], value)
		} else if value == nil {
			delete(node, path[0])
		} else {
			node[path[0]] = value
		}
	case []any:
		index, err := strconv.Atoi(path[0])
		if err != nil || index >= len(node) || len(path) == 1 {
			t.Fatalf("cannot set %v", path)
		}
		Set(t, node[index], path[1:], value)
	default:
		t.Fatalf("no field %v in %T", path, at)
	}
}
