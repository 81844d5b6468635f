package app_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestStuckDeletionRecordsFailure: a deletion that Cluster Service does not accept in time is counted, stores the last
// failure on its operation, and ends once it is accepted.
func TestStuckDeletionRecordsFailure(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	stop := r.start("backend-0")
	key := r.createdCluster("a")
	stop()
	r.refuse(status.Error(codes.Unavailable, "not before noon"))
	operation := r.change(key, database.DeleteRequest)
	item := must.Get(r.db.Operations().Get(t.Context(), operation))(t)
	item.Value.StartTime = item.Value.StartTime.Add(-deletion.StuckAfter)
	r.commit(subscription, func(batch *database.Batch) { database.Replace(batch, item) })

	r.start("backend-0")
	stuck := func() float64 { return r.gauge("backend_deletion_step_stuck", deletion.StepFleetAccepted) }
	r.eventually("the note", func() string {
		item, err := r.db.Operations().Get(t.Context(), operation)
		switch {
		case err != nil || item.Value.Status.Terminal():
			t.Fatalf("the operation ended early: %+v, %v", item, err)
		case len(item.Value.DeletionNotes) != 1: // before that, the new backend may have no metrics
			return fmt.Sprintf("the notes are %+v", item.Value.DeletionNotes)
		case stuck() != 1:
			return fmt.Sprintf("%v deletions are counted as stuck", stuck())
		}
		if note := item.Value.DeletionNotes[0]; note.Kind != deletion.StepFleetAccepted || note.Attempts < 1 || !strings.Contains(note.LastError, "not before noon") {
			t.Fatalf("the note: %+v", note)
		}
		return ""
	})
	r.refuse(nil)
	if ended := r.ends(operation, hub.Succeeded); len(ended.DeletionNotes) != 1 {
		t.Errorf("the operation at its end: %+v", ended)
	}
	r.nothingLeft(subscription)
	r.eventually("the count", func() string {
		if stuck() != 0 {
			return "the step is still counted as stuck"
		}
		return ""
	})
}

// TestDeletionIncludesChildrenCreatedAfterFailedDeletion: after a failed deletion, node pools can be created again.
// They are deleted with the cluster, whether its deletion is requested again or Cluster Service completes the first
// one.
func TestDeletionIncludesChildrenCreatedAfterFailedDeletion(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"RequestedAgain": true, "FirstOneCompletes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegion(t)
			key := r.createdCluster("a")
			item := must.Get(r.db.Clusters().Get(t.Context(), key))(t)
			uid := item.Value.UID
			r.fleet.wait(uid, true)
			failing := r.change(key, database.DeleteRequest)
			r.eventually("Cluster Service accepts the deletion", func() string {
				if r.fleet.deleted(uid) {
					return ""
				}
				return "it has not"
			})
			r.age(failing, asyncoperation.DeleteDeadline)
			r.ends(failing, hub.Failed)
			r.ends(r.createPool(key, "late"), hub.Failed)
			if !again {
				r.fleet.wait(uid, false)
			} else {
				operation := r.change(key, database.DeleteRequest)
				r.eventually("the node pool is shown as being deleted", func() string {
					pool := must.Get(r.db.NodePools().Get(t.Context(), poolKey(key, "late")))(t)
					if pool.Value.ProvisioningState != hub.Deleting {
						return "it is " + string(pool.Value.ProvisioningState)
					}
					return ""
				})
				r.fleet.wait(uid, false)
				r.ends(operation, hub.Succeeded)
			}
			r.eventually("the cluster is deleted", func() string {
				item := must.Get(r.db.Clusters().Find(t.Context(), key))(t)
				if item.Removed == nil {
					return "it is " + string(item.Value.ProvisioningState)
				}
				return ""
			})
			r.nothingLeft(subscription)
		})
	}
}

// age moves the start of an active operation into the past.
func (r *region) age(operation database.Key, by time.Duration) {
	r.t.Helper()
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		item, err := r.db.Operations().Get(ctx, operation)
		if err != nil {
			return err
		}
		item.Value.StartTime = item.Value.StartTime.Add(-by)
		batch := r.db.NewBatch(item.Key.SubscriptionID)
		database.Replace(batch, item)
		return batch.Commit(ctx)
	}))
}

// wait delays the deletion of a cluster, or lets it continue.
func (f *fleet) wait(uid string, waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[uid] = waits
	f.moving[uid] = true
}

// deleted reports whether the deletion of a cluster was accepted.
func (f *fleet) deleted(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[uid].GetDeleteTime() != nil
}

// TestUnacceptedOperationFailsAtDeadline: the deadline ends an operation however long Cluster Service rejects it for a
// transient reason, and the change can then be requested again.
func TestUnacceptedOperationFailsAtDeadline(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	key := r.createdCluster("a")
	r.refuse(status.Error(codes.Internal, "unexpected document"))
	operation := r.change(key, database.UpdateRequest)
	r.age(operation, asyncoperation.CreateDeadline)
	if ended := r.ends(operation, hub.Failed); ended.Error == nil || ended.Error.Code != "DeadlineExceeded" {
		t.Errorf("the operation ended with %+v", ended.Error)
	}
	item, err := r.db.Clusters().Get(t.Context(), key)
	if err != nil || item.Value.ProvisioningState != hub.Failed || item.Value.ActiveOperationID != "" {
		t.Fatalf("the cluster is %+v, %v", item, err)
	}
	r.refuse(nil)
	r.ends(r.change(key, database.UpdateRequest), hub.Succeeded)
}

// TestExperimentalDeadlineEndsOperation: the creation deadline in effect for a node pool ends its operation. A tag that is
// not in effect does not.
func TestExperimentalDeadlineEndsOperation(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	key := r.createdCluster("a")
	r.refuse(status.Error(codes.Internal, "unexpected document"))
	limits := map[string]string{experiment.NodePoolCreationDeadline: "1m"}
	limited := r.createPool(key, "limited", func(p *hub.NodePool) { p.Experiments = limits })
	tagged := r.createPool(key, "tagged", func(p *hub.NodePool) { p.Tags = limits })
	r.age(tagged, 2*time.Minute)
	r.age(limited, 2*time.Minute)
	if ended := r.ends(limited, hub.Failed); ended.Error == nil || ended.Error.Code != "DeadlineExceeded" {
		t.Errorf("the operation ended with %+v", ended.Error)
	}
	r.refuse(nil)
	r.ends(tagged, hub.Succeeded)
}

// TestDeletionRemovesEgressLinks deletes a cluster with two links of the egress gateway while the container of the links refuses writes. The
// cluster keeps its document until its links are removed. The link of another cluster, and one that was removed before, do not change.
func TestDeletionRemovesEgressLinks(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	key, other := clusterKey(subscription, "a"), clusterKey(subscription, "b")
	r.ends(r.createCluster(key), hub.Succeeded)
	r.ends(r.createCluster(other), hub.Succeeded)
	for id, cluster := range map[uint32]database.Key{7: key, 8: key, 9: key, 10: other} {
		r.assignLink(cluster, id)
	}
	uid, now := r.uid(key), time.Now().UTC()
	must.Get(r.db.RemoveEgressLink(t.Context(), 9, uid, "by hand", now, now))(t)
	restore := r.cosmos.InjectFault(t, faults.Rule{Container: "EgressLinks", Operations: []string{"batch"}, Status: http.StatusForbidden})
	operation := r.change(key, database.DeleteRequest)
	r.eventually("the backend tries to remove a link", func() string {
		if r.cosmos.FaultCount() == 0 {
			return "it has not"
		}
		return ""
	})
	if item, err := r.db.Clusters().Find(t.Context(), key); err != nil || item.Removed != nil || item.Value.ProvisioningState != hub.Deleting {
		t.Errorf("without the removal of the links the cluster is %+v, %v", item, err)
	}
	restore()
	r.ends(operation, hub.Succeeded)
	got := map[string]string{}
	must.Do(t, r.db.EachEgressLink(t.Context(), func(item *database.Item[database.EgressLinkDocument]) error {
		d := item.Value
		got[d.LinkID] = fmt.Sprintf("%s removed %v with %d hosts", d.OperationID, d.RemovedTime != nil, len(d.Hosts))
		return nil
	}))
	deletion := operation.ResourceID[strings.LastIndexByte(operation.ResourceID, '/')+1:] + " removed true with 0 hosts"
	want := map[string]string{"7": deletion, "8": deletion, "9": "by hand removed true with 0 hosts", "10": "assign removed false with 1 hosts"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the links (-want +got):\n%s", diff)
	}
}

// assignLink assigns a link of the egress gateway to a cluster.
func (r *region) assignLink(key database.Key, id uint32) {
	r.t.Helper()
	now := time.Now().UTC()
	link := database.EgressLinkDocument{ClusterUID: r.uid(key), ResourceID: key.ResourceID, Hosts: []string{"a.example"}, OperationID: "assign", RequestTime: now}
	must.Get(r.db.AssignEgressLink(r.t.Context(), id, link, now))(r.t)
}
