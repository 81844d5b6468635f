package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// Platform is a chart that belongs to a cluster and not to one program.
type Platform struct {
	// Name is the name of the chart and of its folder in dev-infrastructure/charts; Namespace is that of its release.
	Name, Namespace string
	// Service and Management are true if the chart is installed on service clusters and on management clusters.
	Service, Management bool
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
		{Name: "mesh", Namespace: "istio-system", Service: true, compute: meshValues},
		{Name: "ingress", Namespace: workload.GatewayNamespace, Service: true, compute: ingressValues},
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
	return p.Service
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
	v := map[string]any{"namespaces": namespaces, "operators": []string{}}
	for _, p := range Platforms() {
		if p.Name == operatorChart && p.Applies(c.target) {
			v["operators"] = []string{p.Namespace}
		}
	}
	return v
}

func meshValues(c *computation) any {
	return map[string]any{"trustDomain": c.text("trustDomain"), "sidecars": c.sidecars()}
}

// ingressValues returns the hosts of the gateway. MISE checks requests of ARM where the frontend relies on it.
func ingressValues(c *computation) any {
	v := map[string]any{
		"trustDomain": c.text("trustDomain"), "meshRevision": c.text("serviceCluster", "meshRevision"), "sidecars": c.sidecars(),
		"arm": c.route("arm", mesh.Frontend), "admin": c.route("admin", mesh.Admin),
		"tokens": c.tokens("admin", "frontend"),
	}
	if c.text("frontend", "authentication", "mode") != "sidecar" {
		return v
	}
	host, port, ok := addressIn(c.text("frontend", "authentication", "checkUrl"))
	if _, inside := clusterNamespace(host); !ok || !inside {
		c.fail("frontend.authentication.checkUrl: %s is no Service of the cluster", strings.TrimSpace(host))
	}
	v["check"] = map[string]any{"host": host, "port": port}
	return v
}

// tokens returns the issuers of tokens for the programs that verify them, each with all of its audiences. The gateway does not distinguish
// hosts: with the audience of one program only, it would refuse the tokens of the other.
func (c *computation) tokens(keys ...string) []any {
	audiences := map[string][]string{}
	for _, key := range keys {
		if c.text(key, "authentication", "mode") == "token" {
			issuer := c.text(key, "authentication", "issuer")
			audiences[issuer] = append(audiences[issuer], c.text(key, "authentication", "audience"))
		}
	}
	tokens := []any{}
	for _, issuer := range slices.Sorted(maps.Keys(audiences)) {
		tokens = append(tokens, map[string]any{"issuer": issuer, "audiences": audiences[issuer]})
	}
	return tokens
}

// route returns a host of the gateway and the port of the program behind it.
func (c *computation) route(key string, peer mesh.Peer) map[string]any {
	w, _ := workload.Find(peer)
	return map[string]any{"host": c.text("ingress", key, "host"), "certificate": c.text("ingress", key, "certificate", "name"), "port": w.Ports[mesh.HTTP].Number}
}
