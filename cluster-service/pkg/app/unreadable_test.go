package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

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
	must.Get(service.ApplyCluster(t.Context(), damaged))(t)
	service.awaitCluster(t, damaged.Uid, clusterReady(1))
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
	must.Get(service.ApplyCluster(t.Context(), other))(t)
	service.awaitCluster(t, other.Uid, clusterReady(1))
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
