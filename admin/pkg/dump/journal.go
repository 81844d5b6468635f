package dump

import (
	"context"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/partition"
)

// Journal returns the current state of a cluster's API and its transitions, the newest first. The state is unknown, with the reason, if
// monitor recorded none or has not reported recently that it observes the cluster. It is an error only if Cosmos DB cannot be read.
func (t *Collector) Journal(ctx context.Context, uid string) (*adminv1.Journal, error) {
	record, report, err := t.db.HealthRecord(ctx, int(partition.Of(uid, database.MonitorGroups)), uid)
	if err != nil {
		return nil, err
	}
	return journalOf(time.Now().UTC(), record, report), nil
}

// journalOf returns the journal that follows from a record and the last report about its group, which may both be nil.
func journalOf(now time.Time, record *database.HealthRecord, report *database.GroupReport) *adminv1.Journal {
	journal := &adminv1.Journal{Items: []adminv1.JournalEntry{}}
	if record != nil {
		journal.Items = append(journal.Items, record.Entries...)
		slices.Reverse(journal.Items)
		journal.Health = record.Health
	}
	switch {
	case !report.Current(now):
		detail := "no replica of monitor has ever reported about the cluster"
		since := time.Time{}
		if report != nil {
			since = report.Time
			detail = "monitor reported last at " + since.UTC().Format(time.RFC3339)
		}
		journal.Health = unknown(adminv1.HealthMonitorAway, detail, since)
	case report.Blind != "":
		journal.Health = unknown(adminv1.HealthBlind, report.Blind, time.Time{})
	case record == nil:
		journal.Health = unknown(adminv1.HealthNotRecorded, "", time.Time{})
	}
	return journal
}

func unknown(reason, detail string, since time.Time) adminv1.Health {
	return adminv1.Health{API: adminv1.HealthUnknown, Reason: reason, Detail: detail, Since: since}
}
