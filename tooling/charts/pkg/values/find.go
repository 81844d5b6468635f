package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// Chart is a chart of a target.
type Chart struct {
	// Folder is relative to the root of the repository. Namespace is that of the release.
	Folder, Namespace string
	compute           func() (any, error)
}

// Values computes the values of the chart. An error names the key of the configuration that is missing.
func (c *Chart) Values() (any, error) { return c.compute() }

// Find returns the chart with a name, or that of the program that takes its place in rehearsals. It returns an error if charts with this name
// are not installed in the target.
func Find(name string, t Target) (*Chart, error) {
	stamp := t.Configuration.Get("managementCluster") != nil
	refused := fmt.Errorf("target %s: the chart %s needs %s", t.Name, name, map[bool]string{true: "a region", false: "a stamp"}[stamp])
	for _, p := range Platforms() {
		if p.Name != name {
			continue
		}
		if w, ok := workload.Find(p.Rehearsal); ok && Applies(w, t) {
			return Find(string(w.Peer), t)
		}
		if p.Service && p.Mesh && !stamp && !t.sidecars() {
			return nil, fmt.Errorf("target %s: the chart %s needs Istio, and serviceCluster.identity is not %s", t.Name, name, withSidecars)
		}
		if p.Service && !stamp && !p.configured(t) {
			return nil, fmt.Errorf("target %s: the chart %s needs the key %s, and no layer sets it", t.Name, name, strings.Join(p.Key, "."))
		}
		if !p.Applies(t) {
			return nil, refused
		}
		return &Chart{p.Folder(), p.Namespace, func() (any, error) { return p.Values(t) }}, nil
	}
	w, ok := workload.Find(mesh.Peer(name))
	if !ok {
		return nil, fmt.Errorf("unknown chart %q: `charts list` prints the charts", name)
	}
	if w.Management != stamp {
		return nil, refused
	}
	if !Applies(w, t) {
		return nil, fmt.Errorf("target %s: the chart %s needs the key %s, and no layer sets it", t.Name, name, strings.Join(w.Key, "."))
	}
	return &Chart{w.Folder, string(w.Peer), func() (any, error) { return Of(w, t) }}, nil
}

// Applies reports whether a workload runs in a target: those of management clusters in stamps, all others in regions, and those of
// rehearsals and optional ones only where the configuration has their part.
func Applies(w workload.Workload, t Target) bool {
	return w.Management == (t.Configuration.Get("managementCluster") != nil) && (!w.Rehearsal && !w.Optional || t.Configuration.Get(w.Key...) != nil)
}

// Identities returns the names of the managed identities in a configuration, sorted.
func Identities(configuration *document.Node) []string {
	names := map[string]bool{}
	var visit func(*document.Node)
	visit = func(n *document.Node) {
		for key, field := range n.Fields {
			if key == "managedIdentity" || key == "migrationIdentity" || key == "provisionIdentity" {
				names[fmt.Sprint(field.Value)] = true
			}
			visit(field)
		}
		for _, item := range n.Items {
			visit(item)
		}
	}
	visit(configuration)
	return slices.Sorted(maps.Keys(names))
}
