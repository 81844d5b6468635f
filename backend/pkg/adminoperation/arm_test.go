package adminoperation_test

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	subscription = "11111111-2222-3333-4444-555555555555"
	poolID       = "/subscriptions/" + subscription + "/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c/nodePools/np"
)

// pool writes a node pool.
func (h *environment) pool(t *testing.T, state hub.ProvisioningState, active string) database.Key {
	t.Helper()
	key := must.Get(database.ResourceKey(poolID))(t)
	batch := h.db.NewBatch(subscription)
	database.Create(batch, h.db.NodePools(), key, database.NodePoolDocument{
		UID: "pool", ClusterUID: "uid", Generation: 3, ProvisioningState: state, ActiveOperationID: active,
		NodePool: hub.NodePool{Resource: hub.Resource{ID: poolID, Name: "np", Type: hub.NodePoolResourceType, Location: "westus3"},
			Properties: hub.NodePoolProperties{Replicas: 2}},
	})
	if active != "" {
		database.Create(batch, h.db.Operations(), database.OperationKey(subscription, "westus3", active), database.OperationDocument{
			OperationID: active, Request: database.UpdateRequest, ResourceID: poolID, ResourceType: hub.NodePoolResourceType, UID: "pool", Generation: 3,
			Location: "westus3", Status: hub.Updating, StartTime: time.Now().UTC(),
		})
	}
	must.Do(t, batch.Commit(t.Context()))
	return key
}

// requestOn is request for another target.
func (h *environment) requestOn(t *testing.T, id, action string, target database.AdminTarget, parameters any) database.Key {
	t.Helper()
	return h.request(t, id, action, parameters, func(o *database.AdminOperationDocument) { o.Target = target })
}

func TestScaleNodePoolOnce(t *testing.T) {
	h := newEnvironment(t)
	key := h.pool(t, hub.Succeeded, "")
	target := database.AdminTarget{Kind: "nodePool", ID: "pool", ResourceID: poolID, ClusterUID: "uid"}
	replicas := int32(7)
	// Two replicas of the backend execute it.
	h.run(t, adminoperation.Options{})
	h.run(t, adminoperation.Options{})
	h.await(t, h.requestOn(t, "scale", adminv1.ActionNodePoolScale, target, adminv1.ScaleRequest{Replicas: &replicas}), database.AdminSucceeded)
	item := must.Get(h.db.NodePools().Get(t.Context(), key))(t)
	d := item.Value
	if d.NodePool.Properties.Replicas != 7 || d.Generation != 4 || d.ProvisioningState != hub.Updating || d.ActiveOperationID != "scale" {
		t.Errorf("the node pool is %+v", d)
	}
	operation, err := h.db.Operations().Get(t.Context(), database.OperationKey(subscription, "westus3", "scale"))
	if err != nil || operation.Value.Request != database.UpdateRequest || operation.Value.Generation != 4 || operation.Value.Requester != "alice@example.com" {
		t.Errorf("the ARM operation is %+v: %v", operation, err)
	}
	// The node pool is being updated now.
	o := h.await(t, h.requestOn(t, "again", adminv1.ActionNodePoolScale, target, adminv1.ScaleRequest{Replicas: &replicas}), database.AdminFailed)
	if o.Error == nil || o.Error.Code != "Conflict" {
		t.Errorf("a second operation at the same time: %+v", o.Error)
	}
	target.ID = "another incarnation"
	if o := h.await(t, h.requestOn(t, "other", adminv1.ActionNodePoolScale, target, adminv1.ScaleRequest{Replicas: &replicas}), database.AdminFailed); o.Error.Code != "NotFound" {
		t.Errorf("another incarnation: %+v", o.Error)
	}
}

func TestCancelARMOperation(t *testing.T) {
	h := newEnvironment(t)
	key := h.pool(t, hub.Updating, "update")
	h.run(t, adminoperation.Options{})
	target := database.AdminTarget{Kind: "operation", ID: "update"}
	h.await(t, h.requestOn(t, "retry", adminv1.ActionARMOperationRetry, target, nil), database.AdminSucceeded)
	h.await(t, h.requestOn(t, "cancel", adminv1.ActionARMOperationCancel, target, nil), database.AdminSucceeded)
	item, err := h.db.NodePools().Get(t.Context(), key)
	if err != nil || item.Value.ProvisioningState != hub.Canceled || item.Value.ActiveOperationID != "" {
		t.Errorf("the node pool is %+v: %v", item, err)
	}
	operation, err := h.db.Operations().Get(t.Context(), database.OperationKey(subscription, "westus3", "update"))
	if err != nil || operation.Value.Status != hub.Canceled || operation.Value.EndTime == nil {
		t.Errorf("the operation is %+v: %v", operation, err)
	}
	if o := h.await(t, h.requestOn(t, "late", adminv1.ActionARMOperationRetry, target, nil), database.AdminFailed); o.Error.Code != "Conflict" {
		t.Errorf("an ended operation: %+v", o.Error)
	}
}
