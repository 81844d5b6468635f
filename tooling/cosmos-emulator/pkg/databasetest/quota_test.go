package databasetest_test

import (
	"strconv"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestFreeClusterSlot finds slots of the largest quota while half of them are held. 22 reads fail with a probability of 2^-22.
func TestFreeClusterSlot(t *testing.T) {
	db, _ := databasetest.New(t)
	held := func(slot int) database.Key {
		return database.ReservationKey(subscription, database.ClusterQuotaReservation, strconv.Itoa(slot))
	}
	for slot := 0; slot < database.MaxClusterQuota/2; {
		batch := db.NewBatch(subscription)
		for ; batch.Len() < database.MaxBatchDocuments; slot++ {
			database.Create(batch, db.Reservations(), held(slot), database.ReservationDocument{Kind: database.ClusterQuotaReservation, Name: strconv.Itoa(slot)})
		}
		must.Do(t, batch.Commit(t.Context()))
	}
	for range 20 {
		slot, found, err := db.FreeClusterSlot(t.Context(), subscription, database.MaxClusterQuota)
		if err != nil || !found || slot < database.MaxClusterQuota/2 || slot >= database.MaxClusterQuota {
			t.Errorf("slot %d, found: %v, %v", slot, found, err)
		}
	}
}
