package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// contents returns the functions that compute the configuration files of a workload, by name of the file.
func contents(w workload.Workload) map[string]func(*computation) any {
	switch w.Peer {
	case mesh.Admin:
		return map[string]func(*computation) any{"roles.yaml": (*computation).roles, "access-policy.yaml": (*computation).accessPolicy}
	case mesh.ClusterService:
		return map[string]func(*computation) any{"config.yaml": (*computation).regionSettings, "shards.yaml": (*computation).shards}
	}
	return nil
}

// fileNames are the names of the configuration files of a workload.
func fileNames(w workload.Workload) []string { return slices.Sorted(maps.Keys(contents(w))) }

// files returns the configuration files of the program, by name.
func (c *computation) files() map[string]string {
	files := map[string]string{}
	for name, content := range contents(c.workload) {
		text, err := yaml.Marshal(content(c))
		if err != nil {
			c.fail("writing %s: %w", name, err)
		}
		files[name] = string(text)
	}
	return files
}

// section returns a required map of the configuration.
func (c *computation) section(path ...string) map[string]any {
	n := c.target.Configuration.Get(path...)
	if n == nil || n.Kind != document.Map {
		c.fail("%s: is required, and no layer sets it", document.Join(path[0], path[len(path)-1]))
		return map[string]any{}
	}
	plain, _ := n.Plain().(map[string]any)
	return plain
}

// roles returns the file that maps groups and app roles to roles of admin.
func (c *computation) roles() any {
	roles := map[string]any{"groups": c.section("admin", "groups")}
	for _, name := range []string{"appRoles", "conditions"} {
		if n := c.target.Configuration.Get("admin", name); n != nil {
			roles[name] = n.Plain()
		}
	}
	return roles
}

func (c *computation) accessPolicy() any { return c.section("admin", "accessPolicy") }

// regionSettings returns the configuration file of Cluster Service, and mounts the pull secret that it names.
func (c *computation) regionSettings() any {
	settings := c.section("clusterService", "config")
	settings["pullSecretFile"] = c.mountPullSecret()
	return settings
}

// mountPullSecret mounts the pull secret of OpenShift's images, and returns the path of its file.
func (c *computation) mountPullSecret() string {
	c.mountSecret("keys", "pull-secret", "clusterService", "pullSecret")
	return "/secrets/keys/pull-secret"
}

// consumers sets the management clusters of the region that the Maestro server registers. The server refuses works for others.
func (c *computation) consumers() {
	var names []string
	for _, cluster := range c.managementClusters("name") {
		names = append(names, cluster[0])
	}
	c.set["consumers"] = strings.Join(names, ",")
}

// tunnelAgents sets the client ID of the agent of tunnels of each management cluster. The session gateway refuses tunnels of others.
func (c *computation) tunnelAgents() {
	var agents []string
	for _, cluster := range c.managementClusters("name", "tunnel.managedIdentity") {
		agents = append(agents, cluster[0]+"="+c.clientID(cluster[1]))
	}
	c.set["tunnel-agents"] = strings.Join(agents, ",")
}

// managementClusters returns the values of required keys for each management cluster of the region.
func (c *computation) managementClusters(keys ...string) [][]string {
	clusters := c.target.Configuration.Get("managementClusters")
	if clusters == nil {
		c.fail("managementClusters: the region has none")
		return nil
	}
	var all [][]string
	for i, cluster := range clusters.Items {
		var found []string
		for _, key := range keys {
			n := cluster.Get(strings.Split(key, ".")...)
			if n == nil {
				c.fail("managementClusters[%d].%s: is required, and no layer sets it", i, key)
				return nil
			}
			found = append(found, fmt.Sprint(n.Value))
		}
		all = append(all, found)
	}
	return all
}

// shards returns the file of provision shards, one for each management cluster, and mounts the public keys of their agents.
func (c *computation) shards() any {
	clusters := c.target.Configuration.Get("managementClusters")
	shards := []any{}
	if clusters == nil {
		c.fail("managementClusters: the region has none")
		return nil
	}
	for i, cluster := range clusters.Items {
		name := cluster.Get("name")
		shard, _ := cluster.Get("shard").Plain().(map[string]any)
		if name == nil || shard == nil {
			c.fail("managementClusters[%d]: name and shard are required", i)
			continue
		}
		shard["name"] = name.Value
		shards = append(shards, shard)
	}
	c.mountShardKeys()
	c.set["shard-keys-dir"] = "/secrets/shard-keys"
	return map[string]any{"provisionShards": shards}
}

// mountShardKeys mounts the public keys of the agents of the region's management clusters.
func (c *computation) mountShardKeys() {
	clusters := c.target.Configuration.Get("managementClusters")
	if clusters == nil {
		return
	}
	for i, cluster := range clusters.Items {
		name, key := cluster.Get("name"), cluster.Get("agent", "secretsPublicKey")
		if name == nil || key == nil {
			c.fail("managementClusters[%d]: name and agent.secretsPublicKey are required", i)
			continue
		}
		path := fmt.Sprintf("managementClusters[%d].agent.secretsPublicKey", i)
		c.mount("shard-keys", c.vault(path, key), File{fmt.Sprintf("%v.json", name.Value), fmt.Sprint(key.Get("secret").Value)})
	}
}
