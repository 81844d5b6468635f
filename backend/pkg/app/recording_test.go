package app_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/app"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/recording"
)

// dump returns what the store and Cluster Service have of a cluster and its last operation, as admin reads it.
func (r *region) dump(key, operation database.Key) *adminv1.Dump {
	r.t.Helper()
	dump := &adminv1.Dump{TakenAt: time.Now().UTC(), Cluster: adminv1.Cluster{ResourceID: key.ResourceID}, ARM: &adminv1.ARMLayer{}, ClusterService: &adminv1.FleetLayer{}}
	item, err := r.db.Clusters().Find(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	if item != nil && item.Removed == nil {
		d := item.Value
		dump.Cluster.UID = d.UID
		dump.ARM.Cluster = &adminv1.ARMCluster{ARMState: adminv1.ARMState{UID: d.UID, Generation: d.Generation, ProvisioningState: d.ProvisioningState, ActiveOperationID: d.ActiveOperationID}}
		dump.ARM.Cluster.Resource.ID = key.ResourceID
	}
	found, err := r.db.Operations().Get(r.t.Context(), operation)
	if err != nil {
		r.t.Fatal(err)
	}
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

// startWithin runs a backend whose creates have a deadline, until the test ends or stop is called.
func (r *region) startWithin(deadline time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	db := r.cosmos.Open(r.t)
	go func() {
		defer close(done)
		_ = app.Work(ctx, process.New("backend", slog.New(slog.DiscardHandler)), db, r.connection, r.admin.Verifier, app.Options{
			Replica: "backend-0", Records: r.records, Workers: 8, CascadeDeletions: 40, FeedIdle: 100 * time.Millisecond, LeaseDuration: time.Second,
			Timing: decision.Timing{Grace: 20 * time.Millisecond, Coalesce: 50 * time.Millisecond, CreateDeadline: deadline},
		})
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(stop)
	return stop
}

// TestRecordsInSituations compares what the store has of operations in some situations with the recordings that admin's
// tests explain.
func TestRecordsInSituations(t *testing.T) {
	t.Parallel()
	key := clusterKey(subscription, "demo")
	await := func(t *testing.T, r *region, name string, operation database.Key) {
		t.Helper()
		recording.Await(t, "backend/"+name, func() *adminv1.Dump { return r.dump(key, operation) })
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
		r.fleet.mu.Lock()
		r.fleet.frozen = true
		r.fleet.mu.Unlock()
		r.startWithin(300 * time.Millisecond)
		operation := r.createCluster(key)
		if got := r.ends(operation, hub.Failed); got.Error.Code != "DeadlineExceeded" {
			t.Fatalf("the operation ended with %+v", got.Error)
		}
		await(t, r, "expired", operation)
		r.fleet.mu.Lock()
		r.fleet.frozen = false
		r.fleet.mu.Unlock()
		await(t, r, "expired-then-ready", operation)
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.start("backend-0")
		r.ends(r.createCluster(key), hub.Succeeded)
		operation := r.change(key, database.DeleteRequest)
		r.ends(operation, hub.Succeeded)
		await(t, r, "deleted", operation)
	})
}
