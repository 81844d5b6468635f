package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
)

// damage makes the aggregate of a cluster unreadable until repair is called.
func (r *region) damage(clusterUID string) (repair func()) {
	r.t.Helper()
	execute := func(query string) {
		r.t.Helper()
		direct, err := pgx.Connect(r.t.Context(), r.url)
		if err != nil {
			r.t.Fatal(err)
		}
		defer direct.Close(r.t.Context())
		if _, err := direct.Exec(r.t.Context(), query, clusterUID); err != nil {
			r.t.Fatal(err)
		}
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
	if _, err := service.ApplyCluster(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, damaged.Uid, clusterReady(1))
	r.maestro.Silence("mgmt-1", true)
	damaged.Generation, damaged.Spec.Api.AuthorizedCidrs = 2, []string{"192.0.2.0/24"}
	if _, err := service.ApplyCluster(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
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
	if _, err := service.ApplyCluster(t.Context(), other); err != nil {
		t.Fatal(err)
	}
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
		if _, err := service.ApplyCluster(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	repair := r.damage(damaged.Uid)
	capacity := int32(10)
	update := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &capacity, Actor: kim}
	if _, err := service.UpdateProvisionShard(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, other.Uid, clusterReady(1))
	repair()
	capacity++
	if _, err := service.UpdateProvisionShard(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, damaged.Uid, clusterReady(1))
}
