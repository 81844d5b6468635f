package server

import (
	"context"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// workDrifts lists the kinds of drift below Cluster Service: the layer that differs, whether it is repaired without an engineer, and
// what happens next or must be decided. {cluster} stands for the resource ID of the cluster.
var workDrifts = map[string]struct {
	layer        string
	autoRepaired bool
	remedy       string
}{
	clusterstatus.DriftRefused:       {clusterstatus.LayerMaestro, false, "Maestro rejects the manifests. Cluster Service waits for another change: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftUnpublished:   {clusterstatus.LayerMaestro, true, "Cluster Service retries every 30 seconds. Check that Maestro is ready."},
	clusterstatus.DriftRemoved:       {clusterstatus.LayerManagementCluster, true, "Another client removed it. The agent applies it again: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftBeingRemoved:  {clusterstatus.LayerManagementCluster, false, "Another client deletes it. The agent applies it again when it is gone: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftReplaced:      {clusterstatus.LayerManagementCluster, false, "The control plane was rebuilt without its data. An SRE must decide: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftApplyRefused:  {clusterstatus.LayerManagementCluster, false, "The management cluster permanently refuses the manifests. A person must act: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftForeignFields: {clusterstatus.LayerManagementCluster, false, "A person must remove the fields that no manifest sets; the agent sets the others again within 15 minutes: 'hcpctl explain {cluster}'."},
	clusterstatus.DriftNotApplied:    {clusterstatus.LayerManagementCluster, true, "The management cluster does not accept the manifests. The agent retries: 'hcpctl explain {cluster}'."},
}

// addWorkDrift adds the works that differ from Maestro and from the management clusters, and the removals that the agents repaired.
func (s *Server) addWorkDrift(ctx context.Context, list *adminv1.DriftList) error {
	response, err := s.Fleet.ListWorks(ctx, &clusterservicev1.ListWorksRequest{Drifting: true})
	if err != nil {
		return apierror.FromGRPC(err)
	}
	for _, r := range response.GetRepairedRemovals() {
		o := r.GetRemoval()
		list.RepairedRemovals = append(list.RepairedRemovals, adminv1.RepairedRemoval{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUid(),
			Shard: o.GetProvisionShard(), ResourceID: r.GetClusterResourceId(), ClusterUID: r.GetClusterUid(), Removed: o.GetRemoveTime().AsTime(), AppliedAgain: o.GetAppliedAgainTime().AsTime()})
	}
	for _, w := range response.GetWorks() {
		if len(list.Items) == maxDrift {
			list.More = true
			return nil
		}
		list.Items = append(list.Items, workDrift(w))
	}
	return nil
}

// workDrift returns the drift of a work with its remedy.
func workDrift(w *clusterservicev1.Work) adminv1.Drift {
	known, ok := workDrifts[w.GetDrift()]
	if !ok {
		known.layer, known.remedy = clusterstatus.LayerManagementCluster, "This release does not know the difference: 'hcpctl explain {cluster}'."
	}
	remedy := strings.ReplaceAll(known.remedy, "{cluster}", w.GetClusterResourceId())
	if w.GetDrift() == clusterstatus.DriftForeignFields {
		remedy = w.GetForeignFields() + " " + remedy
	}
	return adminv1.Drift{Layer: known.layer, Difference: w.GetDrift(), Kind: "work", ResourceID: w.GetClusterResourceId(), UID: w.GetId(),
		ClusterUID: w.GetClusterUid(), Desired: w.GetDesired(), InFleet: w.GetPublished(), AutoRepaired: known.autoRepaired, Remedy: remedy}
}

// driftUnknown is the drift of bundles while Cluster Service cannot be read.
const driftUnknown = "Unknown"

// addDrift sets the drift of the bundles of a cluster, by their works. While Cluster Service is away, the list is still useful.
func (s *Server) addDrift(ctx context.Context, clusterUID string, bundles []adminv1.Bundle) {
	response, err := s.Fleet.ListWorks(ctx, &clusterservicev1.ListWorksRequest{ClusterUid: clusterUID})
	if err != nil {
		for i := range bundles {
			bundles[i].Drift = driftUnknown
		}
		return
	}
	drift := map[string]string{}
	for _, w := range response.GetWorks() {
		drift[w.GetId()] = w.GetDrift()
	}
	for i := range bundles {
		bundles[i].Drift = drift[bundles[i].ID]
	}
}
