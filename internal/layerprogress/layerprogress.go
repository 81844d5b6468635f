// Package layerprogress has the names of the layers, of their states and of the drifts of works that Cluster Service reports, and states which
// progress entries are done. Cluster Service finds waiting clusters with it, and admin explains them.
package layerprogress

import clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"

// The layers of progress, outermost first.
const (
	Placement         = "placement"
	Maestro           = "maestro"
	Azure             = "azure"
	ManagementCluster = "management-cluster"
	ControlPlane      = "control-plane"
	NodePool          = "node-pool"
	Upgrade           = "upgrade"
)

// Done reports whether an entry is in a final state. An entry of an unknown layer is not.
func Done(p *clusterservicev1.LayerProgress) bool {
	state := p.GetState()
	switch p.GetLayer() {
	case Placement:
		return state == StatePlaced
	case Azure:
		return state == StateReady || state == StateDeleted
	case Maestro:
		return state == StatePublished
	case ManagementCluster:
		return state == StateApplied || state == StateDeleted
	case ControlPlane:
		return state == StateAvailable || state == StateConfigured
	case NodePool:
		return state == StateReady
	}
	return false
}

// Awaited returns the first entry that is not done; nil if all are.
func Awaited(entries []*clusterservicev1.LayerProgress) *clusterservicev1.LayerProgress {
	for _, p := range entries {
		if !Done(p) {
			return p
		}
	}
	return nil
}
