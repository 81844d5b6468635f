package databasetest_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestIncarnationHasOneBillingRecord: an incarnation has one record, however often and in whatever order its beginning
// and its end are recorded. After the end nothing changes it.
func TestIncarnationHasOneBillingRecord(t *testing.T) {
	db, _ := databasetest.New(t)
	key := clusterKey(t, "alpha")
	at := func(minute int) time.Time { return time.Date(2026, 9, 1, 12, minute, 0, 0, time.UTC) }

	document := cluster("used")
	for minute := range 3 {
		must.Do(t, db.BeginBilling(t.Context(), key, &document, at(minute)))
	}
	for minute := range 3 {
		must.Do(t, db.EndBilling(t.Context(), key, &document, at(10+minute)))
	}
	must.Do(t, db.BeginBilling(t.Context(), key, &document, at(20)))
	if got, err := db.Billing(t.Context(), subscription, "used"); err != nil || !got.CreationTime.Equal(at(0)) || got.DeletionTime == nil || !got.DeletionTime.Equal(at(10)) {
		t.Errorf("a record that was written several times: %+v, %v", got, err)
	}

	created := at(-30)
	real := cluster("of a resource")
	real.Cluster.SystemData = &hub.SystemData{CreatedAt: &created}
	real.Cluster.Properties.Platform.ManagedResourceGroup = "ARO-Alpha"
	must.Do(t, db.BeginBilling(t.Context(), key, &real, at(1)))
	if got, err := db.Billing(t.Context(), subscription, real.UID); err != nil || !got.CreationTime.Equal(created) || got.ManagedResourceGroup != "/subscriptions/"+strings.ToLower(subscription)+"/resourcegroups/aro-alpha" {
		t.Errorf("a record of a resource: %+v, %v", got, err)
	}

	never := cluster("never used")
	must.Do(t, db.EndBilling(t.Context(), key, &never, at(0)))
	must.Do(t, db.BeginBilling(t.Context(), key, &never, at(1)))
	if got, err := db.Billing(t.Context(), subscription, "never used"); err != nil || got.DeletionTime == nil || !got.CreationTime.Equal(*got.DeletionTime) {
		t.Errorf("a record whose end was written first: %+v, %v", got, err)
	}

	ahead := cluster("begun by a clock that is ahead")
	must.Do(t, db.BeginBilling(t.Context(), key, &ahead, at(2)))
	must.Do(t, db.EndBilling(t.Context(), key, &ahead, at(1)))
	if got, err := db.Billing(t.Context(), subscription, ahead.UID); err != nil || got.DeletionTime == nil || got.DeletionTime.Before(got.CreationTime) {
		t.Errorf("a record whose end is before its beginning: %+v, %v", got, err)
	}

	raced := cluster("raced")
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			note := db.EndBilling
			if i%2 == 0 {
				note = db.BeginBilling
			}
			if err := note(t.Context(), key, &raced, at(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := db.Billing(t.Context(), subscription, "raced"); err != nil || got == nil || got.DeletionTime == nil {
		t.Errorf("a record that was written concurrently: %+v, %v", got, err)
	}
}
