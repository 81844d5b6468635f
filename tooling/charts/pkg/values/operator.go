package values

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// The chart of HyperShift's operator, and the namespace into which its command `install` installs the operator.
const operatorChart, operatorNamespace = "hypershift-operator", "hypershift"

// operatorValues returns the values of the chart of HyperShift's operator.
func operatorValues(c *computation) any {
	c.workload = workload.Workload{Key: []string{"managementCluster", "hypershiftOperator"}, Management: true}
	return map[string]any{
		"image":             c.image(),
		"vaultClientId":     c.identity("managedIdentity").ClientID,
		"registryOverrides": c.registryOverrides(),
		"sizes":             c.sizes(),
	}
}

// registryOverrides returns the mirrors of the releases' repositories, from which control planes pull: SOURCE=MIRROR, separated by commas.
func (c *computation) registryOverrides() string {
	var overrides []string
	for _, mirrored := range c.mirrored() {
		overrides = append(overrides, mirrored.source+"="+mirrored.mirror)
	}
	return strings.Join(overrides, ",")
}

// releaseRepositories returns the repositories of the releases: those that have mirrors in the region.
func (c *computation) releaseRepositories() []string {
	var repositories []string
	for _, mirrored := range c.mirrored() {
		repositories = append(repositories, mirrored.source)
	}
	return repositories
}

// mirrored is a repository with its first mirror.
type mirrored struct{ source, mirror string }

// mirrored returns the repositories of the releases.
func (c *computation) mirrored() []mirrored {
	sources := c.target.Configuration.Get("clusterService", "config", "imageContentSources")
	if sources == nil || len(sources.Items) == 0 {
		c.fail("clusterService.config.imageContentSources: the region has none")
		return nil
	}
	var all []mirrored
	for i, source := range sources.Items {
		from, mirrors := source.Get("source"), source.Get("mirrors")
		if from == nil || mirrors == nil || len(mirrors.Items) == 0 {
			c.fail("clusterService.config.imageContentSources[%d]: source and mirrors are required", i)
			return nil
		}
		all = append(all, mirrored{fmt.Sprint(from.Value), fmt.Sprint(mirrors.Items[0].Value)})
	}
	return all
}

// sizes returns the sizes of control planes. A size begins where the one before ends.
func (c *computation) sizes() []any {
	configured := c.target.Configuration.Get(c.path("sizes")...)
	if configured == nil || configured.Kind != document.List {
		c.fail("managementCluster.hypershiftOperator.sizes: is required, and no layer sets it")
		return nil
	}
	sizes, from := []any{}, int64(0)
	for _, item := range configured.Items {
		size, _ := item.Plain().(map[string]any)
		size["from"] = from
		if last, _ := size["maxNodes"].(int64); last > 0 {
			from = last + 1
		} else {
			delete(size, "maxNodes")
		}
		sizes = append(sizes, size)
	}
	return sizes
}
