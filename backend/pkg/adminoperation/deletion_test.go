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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const goingID = "/subscriptions/" + subscription + "/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c"

// RetryDeletion implements the service: it has one step to retry.
func (f *fleet) RetryDeletion(_ context.Context, r *clusterservicev1.RetryDeletionRequest) (*clusterservicev1.RetryDeletionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reject != nil {
		return nil, apierror.ToGRPC(f.reject, "test")
	}
	return &clusterservicev1.RetryDeletionResponse{Steps: []string{"hosted-cluster of " + r.GetClusterUid()}}, nil
}

// TestRetryDeletionReachesBothSides: the change feed brings the documents of a running deletion to the backend's
// controllers, and Cluster Service is called. One of the two suffices.
func TestRetryDeletionReachesBothSides(t *testing.T) {
	nothing := apierror.New(apierror.FailedPrecondition, "No step of a deletion can be retried.")
	target := database.AdminTarget{Kind: "cluster", ID: "uid", ClusterUID: "uid", ResourceID: goingID}
	for name, tc := range map[string]struct {
		reason        string
		cluster, pool hub.ProvisioningState
		refuse        error
		want          adminv1.DeletionRetryResult
		fails         string
	}{
		"Both":        {"each side has something to try", hub.Deleting, hub.Deleting, nil, adminv1.DeletionRetryResult{Steps: []string{"hosted-cluster of uid"}, ResourceIDs: []string{goingID}}, ""},
		"ARM's alone": {"Cluster Service has nothing left, or no deletion", hub.Deleting, hub.Deleting, nothing, adminv1.DeletionRetryResult{ResourceIDs: []string{goingID}}, ""},
		"A part":      {"the cluster is not being deleted", hub.Succeeded, hub.Deleting, nothing, adminv1.DeletionRetryResult{ResourceIDs: []string{poolID}}, ""},
		"The fleet's": {"ARM is not deleting anything", hub.Succeeded, hub.Succeeded, nil, adminv1.DeletionRetryResult{Steps: []string{"hosted-cluster of uid"}}, ""},
		"Neither":     {"there is nothing to try", hub.Succeeded, hub.Succeeded, nothing, adminv1.DeletionRetryResult{}, "No step of a deletion can be retried."},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnvironment(t)
			h.fleet.reject = tc.refuse
			h.pool(t, tc.pool, "goes")
			h.cluster(t, "uid", goingID, tc.cluster, "goes")
			before := h.etags(t)
			h.run(t, adminoperation.Options{})
			state := database.AdminSucceeded
			if tc.fails != "" {
				state = database.AdminFailed
			}
			o := h.await(t, h.requestOn(t, "retry", adminv1.ActionDeletionRetry, target, map[string]string{"clusterUid": "uid"}), state)
			if tc.fails != "" {
				if o.Error == nil || o.Error.Message != tc.fails {
					t.Errorf("%s: %+v", tc.reason, o.Error)
				}
				return
			}
			var got adminv1.DeletionRetryResult
			must.Do(t, json.Unmarshal(o.Result, &got))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			// The feed brings rewritten documents to their handlers.
			after := h.etags(t)
			for id, etag := range before {
				want := slices.Contains(tc.want.ResourceIDs, id) || id == "operation" && len(tc.want.ResourceIDs) > 0
				if (after[id] != etag) != want {
					t.Errorf("%s: %s was rewritten: %t, want %t", tc.reason, id, !want, want)
				}
			}
		})
	}
}

// etags returns the ETags of the documents that a retry may write.
func (h *environment) etags(t *testing.T) map[string]string {
	t.Helper()
	cluster := must.Get(h.db.Clusters().Get(t.Context(), must.Get(database.ResourceKey(goingID))(t)))(t)
	pool := must.Get(h.db.NodePools().Get(t.Context(), must.Get(database.ResourceKey(poolID))(t)))(t)
	operation := must.Get(h.db.Operations().Get(t.Context(), database.OperationKey(subscription, "westus3", "goes")))(t)
	return map[string]string{goingID: cluster.ETag, poolID: pool.ETag, "operation": operation.ETag}
}
