package portal

import (
	"encoding/json"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// fillDrift sets the responses about differences between the layers, orphans, and objects on which engineers act.
func (f *fakeAPI) fillDrift(text string, cluster adminv1.Cluster) {
	ignored := wire.Ignored{Count: 1, Reasons: []string{text}}
	for path, response := range map[string]any{
		"/drift": adminv1.DriftList{Desired: 311, InFleet: 312, Items: []adminv1.Drift{
			{Layer: adminv1.LayerClusterService, Difference: "Orphan", Kind: "cluster", ResourceID: testResourceID + "drifted", UID: "drifted-1", ClusterUID: "drifted-1", InFleet: 1, Remedy: text},
			{Layer: adminv1.LayerMaestro, Difference: "Unpublished", Kind: "work", ResourceID: cluster.ResourceID, UID: "work-1", ClusterUID: testUID, Desired: 15, InFleet: 14, AutoRepaired: true, Remedy: "Cluster Service retries every 30 seconds."}},
			RepairedRemovals: []adminv1.RepairedRemoval{{Kind: "NodePool", Namespace: "ocm-local", Name: text, UID: "removed-1", Shard: "mgmt-1", ResourceID: cluster.ResourceID, ClusterUID: testUID,
				Removed: ago(2 * time.Hour), AppliedAgain: ago(2*time.Hour - 2*time.Second)}}},
		"/orphans": adminv1.OrphanList{Ignored: ignored, Items: []adminv1.Orphan{{ID: "orphan-1", Consumer: "mgmt-1", Version: 3, CreatedAt: ago(80 * time.Hour), UpdatedAt: ago(70 * time.Hour), ClusterID: text, Objects: []string{"HostedCluster " + text}}}},
		"/azure-orphans": adminv1.AzureOrphanList{Items: adminv1.Messages([]*clusterservicev1.AzureOrphan{
			{Uid: "group-1", Kind: "resource-group", AzureId: testResourceID + text, ClusterUid: text, ClusterResourceId: text, Evidence: text, FirstTime: stamp(80 * time.Hour), LastTime: stamp(time.Hour)},
			{Uid: "group-2", Kind: "resource-group", AzureId: text, Evidence: "managedBy", Proof: text, FirstTime: stamp(80 * time.Hour), LastTime: stamp(time.Hour)}})},
		"/deletion-leftovers": adminv1.LeftoverList{Items: adminv1.Messages([]*clusterservicev1.DeletionLeftover{{WorkId: "left-1", Work: text, ProvisionShard: "mgmt-2", ClusterUid: testDeleting, Step: text, Attempts: 9,
			Force: &clusterservicev1.DeletionForce{Actor: &clusterservicev1.Actor{Name: text, Reason: text}}}})},
		"/clusters/" + testUID + "/works": adminv1.BundleList{Ignored: ignored, Items: []adminv1.Bundle{
			{ID: "bundle-1", Name: text, Consumer: "mgmt-1", Version: 14, UpdatedAt: ago(3 * time.Hour), Manifests: []json.RawMessage{json.RawMessage(`{"kind":"HostedCluster","metadata":{"namespace":"ocm-local","name":"payments"}}`), json.RawMessage(`[]`)}, Status: json.RawMessage(`{"conditions":[{"type":"Applied","status":"True"}]}`)},
			{ID: "bundle-2", Consumer: "mgmt-1", Version: 2, UpdatedAt: ago(time.Hour), Drift: "Removed"}}},
		"/arm-operations/o": adminv1.ARMOperation{OperationID: "o", Request: "Update", ResourceID: cluster.ResourceID + "/nodePools/workers", Status: "Updating", StartTime: ago(time.Hour)},
		"/subscriptions/" + cluster.SubscriptionID + "/quota": adminv1.Quota{SubscriptionID: cluster.SubscriptionID, Used: 3},
	} {
		f.responses[path] = response
	}
}
