package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// showStatus returns the progress of a cluster in each layer, and its conditions. Both are empty for a cluster that has not reached Cluster
// Service.
func (s *Server) showStatus(ctx context.Context, rq *request) (any, error) {
	cluster, err := s.finder.One(ctx, rq.http.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	shown := adminv1.ClusterStatus{Time: time.Now().UTC(), Cluster: cluster, Layers: []adminv1.LayerStatus{}, Conditions: []adminv1.ConditionStatus{}}
	row, err := s.Fleet.GetCluster(ctx, &clusterservicev1.GetClusterRequest{Uid: cluster.UID})
	if status.Code(err) == codes.NotFound {
		return shown, nil
	}
	if err != nil {
		return nil, apierror.FromGRPC(err)
	}
	shown.Generation, shown.ObservedGeneration = row.GetGeneration(), row.GetStatus().GetObservedGeneration()
	for _, p := range row.GetStatus().GetProgress() {
		shown.Layers = append(shown.Layers, adminv1.LayerStatus{Layer: p.GetLayer(), State: p.GetState(), Message: p.GetMessage(), Since: timeOf(p.GetSince()), Done: clusterstatus.LayerDone(p)})
	}
	for _, c := range row.GetStatus().GetConditions() {
		shown.Conditions = append(shown.Conditions, adminv1.ConditionStatus{Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(),
			LastTransitionTime: timeOf(c.GetLastTransitionTime())})
	}
	slices.SortFunc(shown.Conditions, func(a, b adminv1.ConditionStatus) int { return strings.Compare(a.Type, b.Type) })
	return shown, nil
}

// timeOf returns a time; zero if it is absent.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// clusterPhases returns the phases of a query parameter: the names of Cluster Service's phases without their prefix, in any casing, separated
// by commas.
func clusterPhases(text string) ([]clusterservicev1.ClusterPhase, error) {
	var phases []clusterservicev1.ClusterPhase
	for name := range strings.SplitSeq(text, ",") {
		phase, known := clusterservicev1.ClusterPhase_value["CLUSTER_PHASE_"+strings.ToUpper(name)]
		if !known || phase == 0 {
			return nil, apierror.New(apierror.InvalidParameter, "Unsupported value: '%s': supported values: %s.", name, strings.Join(phaseNames(), ", ")).WithTarget("phase")
		}
		phases = append(phases, clusterservicev1.ClusterPhase(phase))
	}
	return phases, nil
}

// phaseNames returns the names of the phases in their order.
func phaseNames() []string {
	var names []string
	for i := int32(1); clusterservicev1.ClusterPhase_name[i] != ""; i++ {
		name := strings.ToLower(strings.TrimPrefix(clusterservicev1.ClusterPhase_name[i], "CLUSTER_PHASE_"))
		names = append(names, strings.ToUpper(name[:1])+name[1:])
	}
	return names
}
