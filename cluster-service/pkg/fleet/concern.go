package fleet

import "github.com/hcpmesh/hcpmesh/internal/verdict"

// Concern returns what the cluster waits for, or else the oldest concern of its node pools and external authentications. The zero Concern
// means that it waits for nothing.
func (t *ClusterAggregate) Concern() verdict.Concern {
	if t.Cluster == nil || t.Cluster.Gone() {
		return verdict.Concern{}
	}
	var children []verdict.Resource
	for _, p := range t.Pools {
		if !p.Gone() {
			children = append(children, verdict.NodePool(p.Proto()))
		}
	}
	for _, a := range t.ExternalAuths {
		if !a.Gone() {
			children = append(children, verdict.ExternalAuth(a.Proto()))
		}
	}
	return verdict.ConcernOf(verdict.Cluster(t.Cluster.Proto()), children...)
}
