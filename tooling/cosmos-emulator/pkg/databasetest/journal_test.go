package databasetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestJournalIsBoundedAndRemoved writes more entries than a journal keeps, by two writers at once, and removes the record.
func TestJournalIsBoundedAndRemoved(t *testing.T) {
	t.Parallel()
	db, _ := databasetest.New(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Second)
	entry := func(at time.Time, kind string) adminv1.JournalEntry {
		return adminv1.JournalEntry{Time: at, Event: adminv1.JournalConcernBegan, Kind: kind}
	}
	exists := false // a wrong one is corrected
	write := func(entries ...adminv1.JournalEntry) error {
		exists = !exists
		return db.WriteHealthRecord(ctx, 3, "uid", exists, func(r *database.HealthRecord) {
			r.Health = adminv1.Health{API: adminv1.HealthUnavailable, Since: now}
			r.Failing = map[string]time.Time{"outside": now}
			r.Append(now, entries...)
		})
	}
	if record, report, err := db.HealthRecord(ctx, 3, "uid"); record != nil || report != nil || err != nil {
		t.Fatalf("an unknown cluster has %v, %v, %v", record, report, err)
	}
	must.Do(t, write(entry(now.Add(-15*24*time.Hour), "old"), entry(now.Add(-time.Hour), "first"), entry(now.Add(-time.Hour), "first")))
	record, _, err := db.HealthRecord(ctx, 3, "uid")
	if err != nil || len(record.Entries) != 1 || record.Entries[0].Kind != "first" || record.Health.API != adminv1.HealthUnavailable {
		t.Fatalf("got %+v, %v", record, err)
	}
	for i := range database.JournalEntries + 20 {
		must.Do(t, write(entry(now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint("kind-", i))))
	}
	record, _, err = db.HealthRecord(ctx, 3, "uid")
	if err != nil || len(record.Entries) != database.JournalEntries || record.Entries[0].Kind != "kind-20" {
		t.Fatalf("got %d entries, %v", len(record.Entries), err)
	}
	for range 2 { // a report replaces the previous one
		must.Do(t, db.WriteGroupReport(ctx, 3, database.GroupReport{Replica: "monitor-0", Time: now, Blind: "no network"}))
	}
	found := 0
	if err := db.HealthRecords(ctx, 3, func(r *database.HealthRecord) error {
		if found++; r.UID != "uid" || !r.Failing["outside"].Equal(now) || r.Entries != nil {
			t.Errorf("got %+v", r)
		}
		return nil
	}); err != nil || found != 1 {
		t.Errorf("found %d records, %v", found, err)
	}
	for range 2 {
		must.Do(t, db.RemoveHealthRecord(ctx, 3, "uid"))
	}
	eventually.Soon(t, "the record is gone and the report remains", func() error {
		record, report, err := db.HealthRecord(ctx, 3, "uid")
		if err != nil || record != nil || report == nil || report.Blind != "no network" {
			return fmt.Errorf("got %v, %v, %v", record, report, err)
		}
		return nil
	})

}
