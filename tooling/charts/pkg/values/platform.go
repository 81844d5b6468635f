package values

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// Platform is a chart that belongs to a cluster and not to one program.
type Platform struct {
	// Name is the name of the chart and of its folder in dev-infrastructure/charts; Namespace is that of its release.
	Name, Namespace string
	// Service and Management are true if the chart is installed on service clusters and on management clusters.
	Service, Management bool
	// Mesh is true for a chart that needs Istio: it is installed only on clusters whose programs have sidecars.
	Mesh bool
	// Key is the path of the configuration's part for the chart, which is installed only where the configuration has it. It is empty for a chart
	// that every region or stamp has.
	Key []string
	// Rehearsal is the program that takes the place of the chart in rehearsals, or empty.
	Rehearsal mesh.Peer
	compute   func(*computation) any
}

// Folder is the folder of the chart, relative to the root of the repository.
func (p Platform) Folder() string { return "dev-infrastructure/charts/" + p.Name }

// Platforms returns the charts of clusters, in the order of their installation.
func Platforms() []Platform {
	return []Platform{
		{Name: "cluster", Namespace: "default", Service: true, Management: true, compute: clusterValues},
		{Name: "mesh", Namespace: "default", Service: true, Mesh: true, compute: meshValues},
		{Name: miseChart, Namespace: miseChart, Service: true, Mesh: true, Key: []string{miseChart}, compute: miseValues},
		{Name: ingressChart, Namespace: workload.GatewayNamespace, Service: true, Mesh: true, compute: ingressValues},
		{Name: operatorChart, Namespace: operatorNamespace, Management: true, Rehearsal: mesh.Hypershift, compute: operatorValues},
	}
}

// Applies reports whether the chart is installed in a target.
func (p Platform) Applies(t Target) bool {
	if w, ok := workload.Find(p.Rehearsal); ok && Applies(w, t) {
		return false
	}
	if t.Configuration.Get("managementCluster") != nil {
		return p.Management
	}
	return p.Service && (!p.Mesh || t.sidecars()) && p.configured(t)
}

// configured reports whether the configuration has the part for the chart, if the chart needs one.
func (p Platform) configured(t Target) bool {
	return len(p.Key) == 0 || t.Configuration.Get(p.Key...) != nil
}

// Values returns the values of the chart. An error names the key of the configuration that is missing.
func (p Platform) Values(t Target) (any, error) {
	c := &computation{target: t, workload: workload.Workload{Management: t.Configuration.Get("managementCluster") != nil}}
	v := p.compute(c)
	if c.err != nil {
		return nil, fmt.Errorf("%s: values of the chart %s: %w", t.Name, p.Name, c.err)
	}
	return v, nil
}

func clusterValues(c *computation) any {
	var namespaces []string
	for _, w := range workload.All() {
		if Applies(w, c.target) {
			namespaces = append(namespaces, string(w.Peer))
		}
	}
	operators := []string{}
	for _, p := range Platforms() {
		switch {
		case !p.Applies(c.target):
		case p.Name == operatorChart:
			operators = append(operators, p.Namespace)
		case p.Name == miseChart, p.Name == ingressChart:
			namespaces = append(namespaces, p.Namespace)
		}
	}
	return map[string]any{"namespaces": namespaces, "operators": operators}
}
