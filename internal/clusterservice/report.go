package clusterservice

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The phases of a report that decide on an operation, as FleetState keeps them.
const (
	PhasePending    = "Pending"
	PhaseInstalling = "Installing"
	PhaseReady      = "Ready"
	PhaseUpdating   = "Updating"
	PhaseDeleting   = "Deleting"
	PhaseDeleted    = "Deleted"
	PhaseFailed     = "Failed"
)

// Report is what Cluster Service says of one incarnation of a cluster or node pool, in the form that both share.
type Report struct {
	UID        string
	ResourceID string
	// Revision orders reports; Generation is the newest that Cluster Service has stored, Observed the newest in effect.
	Revision   int64
	Generation int64
	Observed   int64
	// Phase is one of the constants; empty for a phase of another release.
	Phase string
	// Deleting is set once deletion was asked for.
	Deleting   bool
	Conditions []hub.Condition
	// Cluster or NodePool is set.
	Cluster  *hub.ClusterStatus
	NodePool *hub.NodePoolStatus
}

// ClusterReport reads a cluster's report.
func ClusterReport(c *clusterservicev1.Cluster) Report {
	s := c.GetStatus()
	return Report{
		UID:        c.GetUid(),
		ResourceID: c.GetResourceId(),
		Revision:   c.GetRevision(),
		Generation: c.GetGeneration(),
		Observed:   s.GetObservedGeneration(),
		Phase:      phase(s.GetPhase().String(), "CLUSTER_PHASE_"),
		Deleting:   c.GetDeleteTime() != nil,
		Conditions: conditions(s.GetConditions()),
		Cluster: &hub.ClusterStatus{
			Conditions:     conditions(s.GetConditions()),
			APIURL:         s.GetApiUrl(),
			BaseDomain:     s.GetBaseDomain(),
			ConsoleURL:     s.GetConsoleUrl(),
			IssuerURL:      s.GetIssuerUrl(),
			ActiveVersions: s.GetActiveVersions(),
			Progress:       progress(s.GetProgress()),
		},
	}
}

// NodePoolReport reads a node pool's report.
func NodePoolReport(n *clusterservicev1.NodePool) Report {
	s := n.GetStatus()
	return Report{
		UID:        n.GetUid(),
		ResourceID: n.GetResourceId(),
		Revision:   n.GetRevision(),
		Generation: n.GetGeneration(),
		Observed:   s.GetObservedGeneration(),
		Phase:      phase(s.GetPhase().String(), "NODE_POOL_PHASE_"),
		Deleting:   n.GetDeleteTime() != nil,
		Conditions: conditions(s.GetConditions()),
		NodePool: &hub.NodePoolStatus{
			Conditions: conditions(s.GetConditions()),
			Replicas:   s.GetReplicas(),
			Version:    s.GetVersion(),
			Progress:   progress(s.GetProgress()),
		},
	}
}

func phase(name, prefix string) string {
	word := strings.ToLower(strings.TrimPrefix(name, prefix))
	for _, known := range []string{PhasePending, PhaseInstalling, PhaseReady, PhaseUpdating, PhaseDeleting, PhaseDeleted, PhaseFailed} {
		if strings.ToLower(known) == word {
			return known
		}
	}
	return ""
}

func conditions(reported []*clusterservicev1.Condition) []hub.Condition {
	var result []hub.Condition
	for _, c := range reported {
		result = append(result, hub.Condition{
			Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(), LastTransitionTime: when(c.GetLastTransitionTime()),
		})
	}
	return result
}

func progress(reported []*clusterservicev1.LayerProgress) []hub.Progress {
	var result []hub.Progress
	for _, p := range reported {
		result = append(result, hub.Progress{Layer: p.GetLayer(), State: p.GetState(), Message: p.GetMessage(), Since: when(p.GetSince())})
	}
	return result
}

func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime().UTC()
}
