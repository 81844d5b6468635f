package fleet

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// The layers of progress, outermost first.
const (
	LayerPlacement         = clusterstatus.LayerPlacement
	LayerMaestro           = clusterstatus.LayerMaestro
	LayerAzure             = clusterstatus.LayerAzure
	LayerManagementCluster = clusterstatus.LayerManagementCluster
	LayerControlPlane      = clusterstatus.LayerControlPlane
	LayerNodePool          = clusterstatus.LayerNodePool
	LayerUpgrade           = clusterstatus.LayerUpgrade
)

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// setProgress returns the new entries of a progress list. An entry keeps its time while its state does not change.
func setProgress(old []*csv1.LayerProgress, at time.Time, entries ...layer) []*csv1.LayerProgress {
	list := make([]*csv1.LayerProgress, 0, len(entries))
	for _, e := range entries {
		since := timestamp(at)
		i := slices.IndexFunc(old, func(p *csv1.LayerProgress) bool { return p.GetLayer() == e.name && p.GetState() == e.state })
		if i >= 0 {
			since = old[i].GetSince()
		}
		list = append(list, &csv1.LayerProgress{Layer: e.name, State: e.state, Message: e.message, Since: since})
	}
	return list
}

type layer struct{ name, state, message string }

// condition is the desired value of a condition. With an empty status the condition is omitted until it has one.
type condition struct{ name, status, reason, message string }

// setConditions returns the new conditions. A condition keeps its transition time while its status does not change.
func setConditions(old []*csv1.Condition, at time.Time, generation int64, wanted ...condition) []*csv1.Condition {
	list := make([]*csv1.Condition, 0, len(wanted))
	for _, w := range wanted {
		i := slices.IndexFunc(old, func(c *csv1.Condition) bool { return c.GetType() == w.name })
		if w.status == "" {
			// A known condition is kept if one report does not contain it.
			if i >= 0 {
				list = append(list, old[i])
			}
			continue
		}
		changed := timestamp(at)
		if i >= 0 && old[i].GetStatus() == w.status {
			changed = old[i].GetLastTransitionTime()
		}
		list = append(list, &csv1.Condition{Type: w.name, Status: w.status, Reason: w.reason, Message: w.message,
			LastTransitionTime: changed, ObservedGeneration: generation})
	}
	return list
}

// names returns the names of works for a message.
func names(works []*Work) string {
	var list []string
	for _, w := range works {
		list = append(list, w.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
