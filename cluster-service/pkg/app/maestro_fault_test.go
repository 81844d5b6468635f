package app_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// untilDone repeats do until it succeeds, as the layers above do. The service may crash meanwhile.
func untilDone(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	eventually.Before(ctx, t, "a request succeeds", func() error { return do(ctx) })
}

// awaitCondition waits until condition returns true.
func awaitCondition(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually.Soon(t, what, func() error {
		if !condition() {
			return errors.New("the condition is false")
		}
		return nil
	})

}

// TestMaestroFaultsAreTolerated makes Maestro reject requests, lose responses and become unavailable.
func TestMaestroFaultsAreTolerated(t *testing.T) {
	t.Parallel()
	unavailable := status.Error(codes.Unavailable, "injected")
	tests := map[string]struct {
		reason string
		fault  func(count int, action string) (before, after error)
	}{
		"EveryOtherRefused": {
			reason: "a failed publish is retried",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return unavailable, nil
				}
				return nil, nil
			},
		},
		"EveryFirstAnswerLost": {
			reason: "a publish with a lost response is repeated and finds its own effect",
			fault: func(count int, _ string) (error, error) {
				if count%2 == 0 {
					return nil, unavailable
				}
				return nil, nil
			},
		},
		"UnknownErrors": {
			reason: "the published server returns Unknown for every error, which is retried",
			fault: func(count int, _ string) (error, error) {
				if count < 3 {
					return status.Error(codes.Unknown, "failed to update resource"), nil
				}
				return nil, nil
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.play()
			count := 0
			r.maestro.Fault(func(action string, _ *maestrotest.Resource) (error, error) {
				count++
				return tc.fault(count-1, action)
			})
			service := r.start(nil)
			request, _ := service.createReady(t, "c")
			service.removed(t, request.Uid)
		})
	}
}

// TestMaestroIsUnavailable creates a cluster while Maestro is unavailable and deletes it before Maestro returns.
func TestMaestroIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.maestro.Stop()
	service := r.start(nil)
	kept, dropped := applyRequest("kept", 1), applyRequest("dropped", 1)
	for _, request := range []*csv1.ApplyClusterRequest{kept, dropped} {
		must.Get(service.ApplyCluster(t.Context(), request))(t)
	}
	service.remove(t, dropped.Uid)
	service.awaitCluster(t, kept.Uid, func(c *csv1.Cluster) bool {
		for _, layer := range c.GetStatus().GetProgress() {
			if layer.GetLayer() == "maestro" && layer.GetState() == "Retrying" {
				return true
			}
		}
		return false
	})
	must.Do(t, r.maestro.Restart())
	service.awaitCluster(t, kept.Uid, clusterReady(1))
	service.awaitCluster(t, dropped.Uid, clusterDeleted)
}

// TestLostBundlesArePublishedAgain removes bundles that Maestro had acknowledged.
func TestLostBundlesArePublishedAgain(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request, _ := service.createReady(t, "c")
	held := r.maestro.Resources()
	for id := range held {
		r.maestro.Lose(id)
	}
	// After the subscription restarts, a resync finds what is missing.
	r.maestro.Stop()
	must.Do(t, r.maestro.Restart())
	untilDone(t, func(context.Context) error {
		if now := r.maestro.Resources(); len(now) != len(held) {
			return fmt.Errorf("%d of %d bundles are restored", len(now), len(held))
		}
		return nil
	})
	service.awaitCluster(t, request.Uid, clusterReady(1))
}

// TestUpdateOfLostBundle finds that a bundle was lost when it is updated. The versions of the bundle restart then, and
// its statuses must not be treated as old ones.
func TestUpdateOfLostBundle(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request := applyRequest("c", 1)
	for generation := int64(1); generation <= 3; generation++ {
		request.Generation, request.Spec.Api.AuthorizedCidrs = generation, []string{fmt.Sprintf("192.0.2.%d/32", generation)}
		service.applyUntilReady(t, request)
	}
	for id, held := range r.maestro.Resources() {
		if held.Version > 1 {
			r.maestro.Lose(id)
		}
	}
	request.Generation, request.Spec.Api.AuthorizedCidrs = 4, nil
	service.applyUntilReady(t, request)
}

// TestPublishFailsWhileDeleted covers a regression: a work whose publish failed and that was marked for deletion
// meanwhile terminated the process. It must be deleted.
func TestPublishFailsWhileDeleted(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster := service.installed(t, "c", "4.20.16")
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.maestro.Fault(func(action string, resource *maestrotest.Resource) (before, after error) {
		if action != "create" || !strings.HasPrefix(resource.Name, fleet.ClusterID(cluster.Uid)+"-a") {
			return nil, nil
		}
		once.Do(func() { close(asked) })
		<-answer
		return status.Error(codes.Unavailable, "no"), nil
	})
	pool := poolRequest(cluster, "a", 2)
	must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	<-asked
	must.Get(service.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: pool.Uid}))(t)
	close(answer)
	service.awaitPool(t, pool.Uid, poolGone)
}

// damage makes the aggregate of a cluster unreadable until repair is called.
func (r *region) damage(clusterUID string) (repair func()) {
	r.t.Helper()
	execute := func(query string) {
		r.t.Helper()
		direct := must.Get(pgx.Connect(r.t.Context(), r.url))(r.t)
		defer direct.Close(r.t.Context())
		must.Get(direct.Exec(r.t.Context(), query, clusterUID))(r.t)
	}
	execute("INSERT INTO azure_resources (cluster_uid, state) VALUES ($1, 'unreadable')")
	return func() { execute("DELETE FROM azure_resources WHERE cluster_uid = $1") }
}

// TestUnreadableClusterDoesNotBlockStatuses covers a regression: statuses are stored in batches, and one unreadable
// aggregate blocked all other statuses of its batch.
func TestUnreadableClusterDoesNotBlockStatuses(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 100}).run()
	damaged, other := applyRequest("damaged", 1), applyRequest("other", 1)
	service.applyUntilReady(t, damaged)
	r.maestro.Silence("mgmt-1", true)
	damaged.Generation, damaged.Spec.Api.AuthorizedCidrs = 2, []string{"192.0.2.0/24"}
	must.Get(service.ApplyCluster(t.Context(), damaged))(t)
	// The next status arrives while the aggregate is unreadable.
	untilDone(t, func(ctx context.Context) error {
		list, err := service.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: damaged.Uid})
		for _, w := range list.GetWorks() {
			if w.GetPublished() < w.GetDesired() {
				return fmt.Errorf("%s is not published", w.GetName())
			}
		}
		return err
	})
	repair := r.damage(damaged.Uid)
	r.maestro.Silence("mgmt-1", false)
	service.applyUntilReady(t, other)
	repair()
	service.awaitCluster(t, damaged.Uid, clusterReady(2))
}

// TestUnreadableClusterDoesNotBlockPlacement makes one of two waiting clusters unreadable. The other one is placed.
func TestUnreadableClusterDoesNotBlockPlacement(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 0}).run()
	damaged, other := applyRequest("damaged", 1), applyRequest("other", 1)
	for _, request := range []*csv1.ApplyClusterRequest{damaged, other} {
		must.Get(service.ApplyCluster(t.Context(), request))(t)
	}
	repair := r.damage(damaged.Uid)
	capacity := int32(10)
	update := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &capacity, Actor: kim}
	must.Get(service.UpdateProvisionShard(t.Context(), update))(t)
	service.awaitCluster(t, other.Uid, clusterReady(1))
	repair()
	capacity++
	must.Get(service.UpdateProvisionShard(t.Context(), update))(t)
	service.awaitCluster(t, damaged.Uid, clusterReady(1))
}
