package clusterstatus

import clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"

// The layers of progress, outermost first.
const (
	LayerPlacement         = "placement"
	LayerMaestro           = "maestro"
	LayerAzure             = "azure"
	LayerManagementCluster = "management-cluster"
	LayerControlPlane      = "control-plane"
	LayerNodePool          = "node-pool"
	LayerUpgrade           = "upgrade"
)

// LayerDone reports whether an entry is in a final state. An entry of an unknown layer is not.
func LayerDone(p *clusterservicev1.LayerProgress) bool {
	state := p.GetState()
	switch p.GetLayer() {
	case LayerPlacement:
		return state == StatePlaced
	case LayerAzure:
		return state == StateReady || state == StateDeleted
	case LayerMaestro:
		return state == StatePublished
	case LayerManagementCluster:
		return state == StateApplied || state == StateDeleted
	case LayerControlPlane:
		return state == StateAvailable || state == StateConfigured
	case LayerNodePool:
		return state == StateReady
	}
	return false
}

// AwaitedLayer returns the first entry that is not done; nil if all are.
func AwaitedLayer(entries []*clusterservicev1.LayerProgress) *clusterservicev1.LayerProgress {
	for _, p := range entries {
		if !LayerDone(p) {
			return p
		}
	}
	return nil
}
