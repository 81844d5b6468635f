package values

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// SecretRead is a secret that the secrets store driver reads with a managed identity, because a chart mounts it.
type SecretRead struct {
	// Identity is the name of the managed identity.
	Identity string `json:"identity"`
	Vault    string `json:"vault"`
	Secret   string `json:"secret"`
}

// SecretReads returns the secrets that all charts of a target mount, each once for each identity, sorted. The infrastructure assigns its roles by
// them, so that neither digests of images nor outputs of the infrastructure are needed. Programs that get their secrets from Kubernetes read none.
func SecretReads(t Target) ([]SecretRead, error) {
	reads := []SecretRead{}
	for _, w := range workload.All() {
		if !Applies(w, t) {
			continue
		}
		c := &computation{workload: w, target: t}
		reads = append(reads, c.secretReads()...)
		if c.err != nil {
			return nil, fmt.Errorf("%s: secrets of the chart %s: %w", t.Name, w.Peer, c.err)
		}
	}
	for _, p := range Platforms() {
		if p.Name != ingressChart || !p.Applies(t) {
			continue
		}
		c := &computation{target: t}
		for name, routes := range c.gatewayRoutes() {
			for _, route := range routes {
				reads = append(reads, SecretRead{c.text("ingress", name, "managedIdentity"), c.text("keyVaults", "service"), route.Certificate})
			}
		}
		if c.err != nil {
			return nil, fmt.Errorf("%s: secrets of the chart %s: %w", t.Name, p.Name, c.err)
		}
	}
	slices.SortFunc(reads, func(a, b SecretRead) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Vault, b.Vault), cmp.Compare(a.Secret, b.Secret))
	})
	return slices.Compact(reads), nil
}

// secretReads returns the secrets that the chart of the program mounts. A certificate is two files of one secret.
func (c *computation) secretReads() []SecretRead {
	if c.secrets().Provider != CSI {
		return nil
	}
	c.mounts = map[string]*Volume{}
	c.visitFlags(func(path []string, flag string, n *document.Node) {
		if n.Kind == document.Map && !c.target.Schema.Lookup(path...).Image() {
			c.secret(path, flag, n)
		}
	})
	if c.workload.Peer == mesh.ClusterService {
		c.mountPullSecret()
		c.mountShardKeys()
	}
	var reads []SecretRead
	for _, volume := range c.volumes() {
		for _, file := range volume.Files {
			reads = append(reads, SecretRead{c.own("managedIdentity"), volume.Vault, file.Secret})
		}
	}
	return reads
}
