package app_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

func inventoryKey(e *clusterservicev1.InventoryEntry) string { return strings.ToLower(e.ResourceId) }

func (f *fleet) ListInventory(_ context.Context, r *clusterservicev1.ListInventoryRequest) (*clusterservicev1.ListInventoryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	after, err := base64.RawURLEncoding.DecodeString(r.PageToken)
	if err != nil {
		return nil, refused(apierror.Invalid, "")
	}
	var entries []*clusterservicev1.InventoryEntry
	add := func(kind clusterservicev1.InventoryKind, gone bool, uid, clusterUID, resourceID string, generation int64, deleted *timestamppb.Timestamp) {
		e := &clusterservicev1.InventoryEntry{Kind: kind, Uid: uid, ClusterUid: clusterUID, ResourceId: resourceID, Generation: generation, Deleting: deleted != nil}
		if !gone && inventoryKey(e) > string(after) {
			entries = append(entries, e)
		}
	}
	for _, c := range f.clusters {
		add(clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, c.Status.Phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED, c.Uid, c.Uid, c.ResourceId, c.Generation, c.DeleteTime)
	}
	for _, p := range f.pools {
		add(clusterservicev1.InventoryKind_INVENTORY_KIND_NODE_POOL, p.Status.Phase == clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED, p.Uid, p.ClusterUid, p.ResourceId, p.Generation, p.DeleteTime)
	}
	for _, a := range f.auths {
		add(clusterservicev1.InventoryKind_INVENTORY_KIND_EXTERNAL_AUTH, a.Status.Phase == clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED, a.Uid, a.ClusterUid, a.ResourceId, a.Generation, a.DeleteTime)
	}
	slices.SortFunc(entries, func(a, b *clusterservicev1.InventoryEntry) int { return cmp.Compare(inventoryKey(a), inventoryKey(b)) })
	response := &clusterservicev1.ListInventoryResponse{Revision: f.revision, Entries: entries}
	if limit := int(cmp.Or(r.PageSize, 1000)); len(entries) > limit {
		response.Entries = entries[:limit]
		response.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(inventoryKey(entries[limit-1])))
	}
	return response, nil
}

func (f *fleet) GetClusterRecovery(_ context.Context, r *clusterservicev1.GetClusterRecoveryRequest) (*clusterservicev1.ClusterRecovery, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clusters[r.Uid]
	if c == nil {
		return nil, refused(apierror.NotFound, "CLUSTER_UNKNOWN")
	}
	if c.Status.ProvisionShard == "" {
		return nil, refused(apierror.FailedPrecondition, "CLUSTER_UNPLACED")
	}
	return proto.CloneOf(f.recovery(c)), nil
}

// recovery returns the recovery data of a cluster. The caller holds f.mu.
func (f *fleet) recovery(c *clusterservicev1.Cluster) *clusterservicev1.ClusterRecovery {
	return &clusterservicev1.ClusterRecovery{ProvisionShard: c.Status.ProvisionShard, ReleaseVersion: c.Spec.GetVersion().GetId() + ".0", ReleaseImage: "image",
		SigningKey: []byte("sealed for " + c.Uid), CreateTime: c.CreateTime}
}
