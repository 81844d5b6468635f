package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
)

// damage makes an aggregate that no transaction can read, as a human's slip would, until heal is called.
func (r *region) damage(clusterUID string) (heal func()) {
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

// TestADamagedTenancyHoldsUpNoStatuses is named after what went wrong: statuses are stored many at a time, and one of an aggregate
// that could not be read kept all the others from being stored, for good.
func TestADamagedTenancyHoldsUpNoStatuses(t *testing.T) {
	r := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 100})
	r.play()
	service := r.start(nil)
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
	// Its next status comes when it is damaged.
	untilDone(t, func(ctx context.Context) error {
		list, err := service.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: damaged.Uid})
		for _, w := range list.GetWorks() {
			if w.GetPublished() < w.GetDesired() {
				return fmt.Errorf("%s is not published", w.GetName())
			}
		}
		return err
	})
	heal := r.damage(damaged.Uid)
	r.maestro.Silence("mgmt-1", false)
	if _, err := service.ApplyCluster(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, other.Uid, clusterReady(1))
	heal()
	service.awaitCluster(t, damaged.Uid, clusterReady(2))
}

// TestADamagedTenancyHoldsUpNoPlaces has one of two clusters that wait for a place be unreadable: the other gets one.
func TestADamagedTenancyHoldsUpNoPlaces(t *testing.T) {
	r := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 0})
	r.play()
	service := r.start(nil)
	damaged, other := applyRequest("damaged", 1), applyRequest("other", 1)
	for _, request := range []*csv1.ApplyClusterRequest{damaged, other} {
		if _, err := service.ApplyCluster(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	heal := r.damage(damaged.Uid)
	capacity := int32(10)
	update := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &capacity, Actor: kim}
	if _, err := service.UpdateProvisionShard(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, other.Uid, clusterReady(1))
	heal()
	capacity++
	if _, err := service.UpdateProvisionShard(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, damaged.Uid, clusterReady(1))
}
