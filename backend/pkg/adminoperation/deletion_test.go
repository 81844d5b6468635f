package adminoperation_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const goingID = "/subscriptions/" + subscription + "/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c"

// RetryDeletion implements the service: it has one step to try again.
func (f *fleet) RetryDeletion(_ context.Context, r *clusterservicev1.RetryDeletionRequest) (*clusterservicev1.RetryDeletionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, apierror.ToGRPC(f.refuse, "test")
	}
	return &clusterservicev1.RetryDeletionResponse{Steps: []string{"hosted-cluster of " + r.GetClusterUid()}}, nil
}

// TestARetryOfADeletionReachesBothSides: what ARM's documents say is on its way is brought to the backend's controllers by the
// change feed, and Cluster Service is called; either is enough.
func TestARetryOfADeletionReachesBothSides(t *testing.T) {
	nothing := apierror.New(apierror.FailedPrecondition, "No deletion waits for anything.")
	target := database.AdminTarget{Kind: "cluster", ID: "uid", ClusterUID: "uid", ResourceID: goingID}
	for name, tc := range map[string]struct {
		reason        string
		cluster, pool hub.ProvisioningState
		refuse        error
		want          adminv1.DeletionRetryResult
		fails         string
	}{
		"Both":        {"each side has something to try", hub.Deleting, hub.Deleting, nil, adminv1.DeletionRetryResult{Steps: []string{"hosted-cluster of uid"}, ResourceIDs: []string{goingID}}, ""},
		"ARM's alone": {"Cluster Service has nothing left, or has not been asked", hub.Deleting, hub.Deleting, nothing, adminv1.DeletionRetryResult{ResourceIDs: []string{goingID}}, ""},
		"A part":      {"the cluster stays", hub.Succeeded, hub.Deleting, nothing, adminv1.DeletionRetryResult{ResourceIDs: []string{poolID}}, ""},
		"The fleet's": {"ARM is not deleting anything", hub.Succeeded, hub.Succeeded, nil, adminv1.DeletionRetryResult{Steps: []string{"hosted-cluster of uid"}}, ""},
		"Neither":     {"there is nothing to try", hub.Succeeded, hub.Succeeded, nothing, adminv1.DeletionRetryResult{}, "No deletion waits for anything."},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.fleet.refuse = tc.refuse
			h.pool(t, tc.pool, "goes")
			key, err := database.ResourceKey(goingID)
			if err != nil {
				t.Fatal(err)
			}
			batch := h.db.NewBatch(subscription)
			database.Create(batch, h.db.Clusters(), key, database.ClusterDocument{UID: "uid", Generation: 1, ProvisioningState: tc.cluster, ActiveOperationID: "goes",
				Cluster: hub.Cluster{Resource: hub.Resource{ID: goingID, Name: "c", Type: hub.ClusterResourceType, Location: "westus3"}}})
			if err := batch.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := h.written(t)
			h.run(t, adminoperation.Options{})
			state := database.AdminSucceeded
			if tc.fails != "" {
				state = database.AdminFailed
			}
			o := h.await(t, h.askOn(t, "retry", adminv1.ActionDeletionRetry, target, &struct {
				ClusterUID string `json:"clusterUid"`
			}{"uid"}), state)
			if tc.fails != "" {
				if o.Error == nil || o.Error.Message != tc.fails {
					t.Errorf("%s: %+v", tc.reason, o.Error)
				}
				return
			}
			var got adminv1.DeletionRetryResult
			if err := json.Unmarshal(o.Result, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			// What was written as it was comes by the feed to whoever it is with.
			after := h.written(t)
			for id, etag := range before {
				want := slices.Contains(tc.want.ResourceIDs, id) || id == "operation" && len(tc.want.ResourceIDs) > 0
				if (after[id] != etag) != want {
					t.Errorf("%s: %s was written: %t, want %t", tc.reason, id, !want, want)
				}
			}
		})
	}
}

// written are the ETags of the documents that a retry may write, by what they are of.
func (h *house) written(t *testing.T) map[string]string {
	t.Helper()
	key, err := database.ResourceKey(goingID)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := h.db.Clusters().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = database.ResourceKey(poolID); err != nil {
		t.Fatal(err)
	}
	pool, err := h.db.NodePools().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	operation, err := h.db.Operations().Get(t.Context(), database.OperationKey(subscription, "westus3", "goes"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{goingID: cluster.ETag, poolID: pool.ETag, "operation": operation.ETag}
}
