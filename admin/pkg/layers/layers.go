// Package layers observes the components of a region: the services, their stores, and what runs on the management clusters.
//
// A Monitor asks every component a real question with a deadline: all at the same time, every few seconds and whenever an
// explanation needs the answers. The cost depends on the number of management clusters, not of clusters. It remembers when each
// component was last ready, shares with the other replicas since when each one is away, and exports both as metrics. Outages is a pure function that separates the components that are away by themselves from those that
// only lack something that they need.
package layers

import (
	"cmp"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// needs maps each layer to the layers that it needs. Components need only components of their own management cluster and of the
// region.
var needs = map[string][]string{
	adminv1.ComponentMaestroServer:    {adminv1.ComponentPostgreSQL, adminv1.ComponentMQTTBroker},
	adminv1.ComponentManagementAPI:    {adminv1.ComponentEtcd},
	adminv1.ComponentManagementWorker: {adminv1.ComponentManagementAPI},
	adminv1.ComponentAgent:            {adminv1.ComponentMQTTBroker, adminv1.ComponentManagementAPI},
	adminv1.ComponentHyperShift:       {adminv1.ComponentManagementAPI},
	adminv1.ComponentHostedAPI:        {adminv1.ComponentEtcd},
	adminv1.ComponentClusterService:   {adminv1.ComponentPostgreSQL, adminv1.ComponentMaestroServer},
	adminv1.ComponentBackend:          {adminv1.ComponentCosmosDB, adminv1.ComponentClusterService},
	adminv1.ComponentFrontend:         {adminv1.ComponentCosmosDB},
}

// order lists the layers, those that others need first. Outages are listed in this order.
var order = []string{
	adminv1.ComponentEtcd, adminv1.ComponentPostgreSQL, adminv1.ComponentCosmosDB, adminv1.ComponentMQTTBroker, adminv1.ComponentManagementAPI,
	adminv1.ComponentMaestroServer, adminv1.ComponentAgent, adminv1.ComponentHyperShift, adminv1.ComponentHostedAPI, adminv1.ComponentClusterService,
	adminv1.ComponentBackend, adminv1.ComponentFrontend, adminv1.ComponentManagementWorker,
}

// Layers returns all layers, those that others need first.
func Layers() []string { return slices.Clone(order) }

// Needs reports whether a layer needs another, directly or indirectly.
func Needs(layer, other string) bool {
	return slices.ContainsFunc(needs[layer], func(direct string) bool { return direct == other || Needs(direct, other) })
}

// Outage is a layer, of the region or of one management cluster, that is away although everything that it needs is ready, as far as
// that is known.
type Outage struct {
	// Component is the component of the layer whose answer says most. Since is the earliest one of all of them.
	adminv1.Component
	// Also are the other components of the layer that are away.
	Also []adminv1.Component
	// Dependents are the components of other layers that are away and need it. They may be away only for that reason.
	Dependents []adminv1.Component
}

// telling orders the states by how much they say about the cause.
var telling = []adminv1.ComponentState{adminv1.ComponentDiskFull, adminv1.ComponentUnreachable, adminv1.ComponentNotReady, adminv1.ComponentUnresponsive}

// Outages returns the outages among components, those of layers that others need first.
func Outages(components []adminv1.Component) []Outage {
	away := slices.DeleteFunc(slices.Clone(components), func(c adminv1.Component) bool { return !c.Away() })
	slices.SortStableFunc(away, func(a, b adminv1.Component) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Layer), slices.Index(order, b.Layer)), cmp.Compare(a.ProvisionShard, b.ProvisionShard),
			cmp.Compare(slices.Index(telling, a.State), slices.Index(telling, b.State)))
	})
	var outages []Outage
	for _, c := range away {
		if slices.ContainsFunc(away, func(cause adminv1.Component) bool { return causes(cause, c) }) {
			continue
		}
		if n := len(outages) - 1; n >= 0 && outages[n].Layer == c.Layer && outages[n].ProvisionShard == c.ProvisionShard {
			outages[n].Also = append(outages[n].Also, c)
			if !c.Since.IsZero() && (outages[n].Since.IsZero() || c.Since.Before(outages[n].Since)) {
				outages[n].Since = c.Since
			}
			continue
		}
		outages = append(outages, Outage{Component: c})
	}
	for i := range outages {
		for _, c := range away {
			if causes(outages[i].Component, c) {
				outages[i].Dependents = append(outages[i].Dependents, c)
			}
		}
	}
	return outages
}

// causes reports whether c needs cause, which is away.
func causes(cause, c adminv1.Component) bool {
	return Needs(c.Layer, cause.Layer) && (cause.ProvisionShard == "" || c.ProvisionShard == "" || cause.ProvisionShard == c.ProvisionShard)
}
