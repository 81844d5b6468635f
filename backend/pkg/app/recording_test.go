package app_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/recordeddump"
)

// dump returns what the store and Cluster Service have of a cluster and its last operation, as admin reads it.
func (r *region) dump(key, operation database.Key) *adminv1.Dump {
	r.t.Helper()
	dump := &adminv1.Dump{TakenAt: time.Now().UTC(), Cluster: adminv1.Cluster{ResourceID: key.ResourceID}, ARM: &adminv1.ARMLayer{}, ClusterService: &adminv1.FleetLayer{}}
	item := must.Get(r.db.Clusters().Find(r.t.Context(), key))(r.t)
	if item != nil && item.Removed == nil {
		d := item.Value
		dump.Cluster.UID = d.UID
		dump.ARM.Cluster = &adminv1.ARMCluster{ARMState: adminv1.ARMState{UID: d.UID, Generation: d.Generation, ProvisioningState: d.ProvisioningState, ActiveOperationID: d.ActiveOperationID}}
		dump.ARM.Cluster.Resource.ID = key.ResourceID
	}
	found := must.Get(r.db.Operations().Get(r.t.Context(), operation))(r.t)
	o := found.Value
	shown := adminv1.ARMOperation{OperationID: o.OperationID, Request: string(o.Request), ResourceID: o.ResourceID, UID: o.UID, Status: o.Status, StartTime: o.StartTime, EndTime: o.EndTime}
	if o.Error != nil {
		shown.Error = &adminv1.FailureDetail{Code: o.Error.Code, Message: o.Error.Message}
	}
	dump.ARM.Operations = append(dump.ARM.Operations, shown)
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	for _, c := range r.fleet.clusters {
		if strings.EqualFold(c.GetResourceId(), key.ResourceID) {
			dump.ClusterService.Cluster, dump.Cluster.UID = &adminv1.FleetCluster{Of: c}, c.GetUid()
		}
	}
	return dump
}

// refuse makes Cluster Service respond to every call with an error, or normally if err is nil.
func (r *region) refuse(err error) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.refuse = err
}

// delivered waits until Cluster Service has accepted a cluster.
func (r *region) delivered(key database.Key) {
	r.t.Helper()
	r.eventually("the cluster", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		for _, c := range r.fleet.clusters {
			if strings.EqualFold(c.ResourceId, key.ResourceID) {
				return ""
			}
		}
		return "is not in Cluster Service"
	})
}

// TestRecordsInSituations compares what the store has of operations in some situations with the recordings that admin's
// tests explain.
func TestRecordsInSituations(t *testing.T) {
	t.Parallel()
	key := clusterKey(subscription, "demo")
	await := func(t *testing.T, r *region, name string, operation database.Key) {
		t.Helper()
		recordeddump.Await(t, "backend/"+name, func() *adminv1.Dump { return r.dump(key, operation) }, nil)
	}
	t.Run("not delivered", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.refuse(status.Error(codes.Unavailable, "not now"))
		r.start("backend-0")
		operation := r.createCluster(key)
		await(t, r, "not-delivered", operation)
	})
	t.Run("rejected by Cluster Service", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.refuse(apierror.ToGRPC(apierror.InvalidFields([]apierror.Violation{{Field: "spec.network.host_prefix", Message: "Invalid value: it leaves no room for pods"}}), "clusterservice.hcpmesh"))
		r.start("backend-0")
		operation := r.createCluster(key)
		r.ends(operation, hub.Failed)
		await(t, r, "rejected", operation)
	})
	t.Run("expired, and the fleet continued", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.freeze(true)
		r.start("backend-0")
		operation := r.createCluster(key)
		r.delivered(key)
		r.age(operation, asyncoperation.CreateDeadline)
		if got := r.ends(operation, hub.Failed); got.Error.Code != "DeadlineExceeded" {
			t.Fatalf("the operation ended with %+v", got.Error)
		}
		r.age(operation, -asyncoperation.CreateDeadline) // the recording has its real start
		await(t, r, "expired", operation)
		r.freeze(false)
		await(t, r, "expired-then-ready", operation)
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		r := startRegion(t)
		r.ends(r.createCluster(key), hub.Succeeded)
		operation := r.change(key, database.DeleteRequest)
		r.ends(operation, hub.Succeeded)
		await(t, r, "deleted", operation)
	})
}
