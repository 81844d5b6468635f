package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// MonitorGroups is the number of groups into which monitor divides the clusters; see package partition. It must not change while
// replicas with another number run. Each group of a dead replica costs its next owner one write, so more groups would make a takeover
// slower, and no region needs more replicas.
const MonitorGroups = 64

// The limits of a journal.
const (
	// JournalEntries is the number of entries that a cluster's journal keeps, and JournalAge how long it keeps each.
	JournalEntries = 200
	JournalAge     = 14 * 24 * time.Hour
	// ReportStaleAfter is the age of a group's report after which nothing is known about the health of its clusters.
	ReportStaleAfter = 90 * time.Second
	// reportTTL is how long Cosmos DB keeps the last report of a group, in seconds. It shows when monitor was last there.
	reportTTL = 14 * 24 * 60 * 60
	// maxJournalConflicts bounds the attempts of one write.
	maxJournalConflicts = 5
)

// HealthRecord is the record of one cluster in the container Journal. Only monitor writes it.
type HealthRecord struct {
	UID    string         `json:"uid,omitempty"`
	Health adminv1.Health `json:"health"`
	// Failing maps the vantages from which the API is unavailable to the time of the first failure. Another replica of monitor
	// continues with it.
	Failing map[string]time.Time `json:"failing,omitempty"`
	// Entries are the transitions in order of time.
	Entries []adminv1.JournalEntry `json:"entries,omitempty"`
}

// Append adds the entries that the record does not have, and removes those that exceed the limits. It is idempotent.
func (r *HealthRecord) Append(now time.Time, entries ...adminv1.JournalEntry) {
	for _, e := range entries {
		known := false
		for _, old := range r.Entries {
			known = known || old.Time.Equal(e.Time) && old.Event == e.Event && old.Kind == e.Kind
		}
		if !known {
			r.Entries = append(r.Entries, e)
		}
	}
	r.Entries = recent(r.Entries, now)
}

// recent returns the entries that are within the limits of a journal.
func recent(entries []adminv1.JournalEntry, now time.Time) []adminv1.JournalEntry {
	entries = entries[max(0, len(entries)-JournalEntries):]
	for len(entries) > 0 && now.Sub(entries[0].Time) > JournalAge {
		entries = entries[1:]
	}
	return entries
}

// GroupReport states that a replica of monitor observes the clusters of a group.
type GroupReport struct {
	Replica string    `json:"replica"`
	Time    time.Time `json:"time"`
	// Blind is why monitor cannot see the clusters, or empty.
	Blind string `json:"blind,omitempty"`
}

// Current reports whether the report is recent enough for statements about the group's clusters.
func (r *GroupReport) Current(now time.Time) bool {
	return r != nil && now.Sub(r.Time) <= ReportStaleAfter
}

// journalItem is the form of both kinds of documents in the container Journal.
type journalItem struct {
	ID     string        `json:"id"`
	Group  string        `json:"group"`
	Record *HealthRecord `json:"record,omitempty"`
	Report *GroupReport  `json:"report,omitempty"`
	TTL    int           `json:"ttl,omitempty"`
	ETag   string        `json:"_etag,omitempty"`

	// read is the document as it was read, or nil.
	read []byte
}

const reportID = "report"

var errJournalConflict = errors.New("another writer has written the document")

func recordID(uid string) string { return "cluster:" + uid }

// HealthRecord returns the record of a cluster and the last report about its group. Both are nil if they do not exist.
func (db *DB) HealthRecord(ctx context.Context, group int, uid string) (*HealthRecord, *GroupReport, error) {
	const query = "SELECT * FROM c WHERE c.id = @cluster OR c.id = @report"
	var record *HealthRecord
	var report *GroupReport
	err := db.journalItems(ctx, group, query, []azcosmos.QueryParameter{{Name: "@cluster", Value: recordID(uid)}, {Name: "@report", Value: reportID}}, func(item *journalItem) error {
		if item.Record != nil {
			record = item.Record
			record.Entries = recent(record.Entries, time.Now())
		}
		if item.Report != nil {
			report = item.Report
		}
		return nil
	})
	return record, report, err
}

// HealthRecords calls each for the record of every cluster of a group, without its entries.
func (db *DB) HealthRecords(ctx context.Context, group int, each func(*HealthRecord) error) error {
	const query = "SELECT c.id, {'uid': c.record.uid, 'health': c.record.health, 'failing': c.record.failing} AS record FROM c WHERE c.id != @report"
	return db.journalItems(ctx, group, query, []azcosmos.QueryParameter{{Name: "@report", Value: reportID}}, func(item *journalItem) error {
		if item.Record == nil || item.Record.UID == "" {
			return nil // removed
		}
		return each(item.Record)
	})
}

// WriteHealthRecord replaces the record of a cluster by what change makes of it, or creates it. With exists, it begins with a read; without,
// with a creation. It calls change again, with what another writer wrote, after a conflict.
func (db *DB) WriteHealthRecord(ctx context.Context, group int, uid string, exists bool, change func(*HealthRecord)) error {
	for attempt := range maxJournalConflicts {
		var item *journalItem
		if exists || attempt > 0 {
			var err error
			if item, err = db.readJournalItem(ctx, group, recordID(uid)); err != nil {
				return err
			}
		}
		if item == nil {
			item = &journalItem{ID: recordID(uid), Group: strconv.Itoa(group)}
		}
		if item.Record == nil {
			item.Record = &HealthRecord{}
		}
		item.Record.UID, item.TTL = uid, 0
		change(item.Record)
		if err := db.writeJournalItem(ctx, group, item); !errors.Is(err, errJournalConflict) {
			return err
		}
	}
	return fmt.Errorf("writing the health of %s: other writers were faster %d times", uid, maxJournalConflicts)
}

// RemoveHealthRecord removes the record of a cluster with its entries. It is idempotent. monitor has no right to delete documents,
// so that the document is emptied and Cosmos DB removes it after a second.
func (db *DB) RemoveHealthRecord(ctx context.Context, group int, uid string) error {
	for range maxJournalConflicts {
		item, err := db.readJournalItem(ctx, group, recordID(uid))
		if err != nil || item == nil {
			return err
		}
		item.Record, item.TTL = nil, 1
		if err := db.writeJournalItem(ctx, group, item); !errors.Is(err, errJournalConflict) {
			return err
		}
	}
	return fmt.Errorf("removing the health of %s: other writers were faster %d times", uid, maxJournalConflicts)
}

// WriteGroupReport stores the report about a group. The last writer wins: two replicas write only around a takeover.
func (db *DB) WriteGroupReport(ctx context.Context, group int, report GroupReport) error {
	for range maxJournalConflicts {
		item, err := db.readJournalItem(ctx, group, reportID)
		if err != nil {
			return err
		}
		if item == nil {
			item = &journalItem{ID: reportID, Group: strconv.Itoa(group)}
		}
		item.Report, item.TTL = &report, reportTTL
		if err := db.writeJournalItem(ctx, group, item); !errors.Is(err, errJournalConflict) {
			return err
		}
	}
	return fmt.Errorf("writing the report of group %d: other writers were faster %d times", group, maxJournalConflicts)
}

// readJournalItem returns a document, or nil if it does not exist.
func (db *DB) readJournalItem(ctx context.Context, group int, id string) (*journalItem, error) {
	item := &journalItem{}
	err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
		response, err := client.journal.ReadItem(ctx, azcosmos.NewPartitionKeyString(strconv.Itoa(group)), id, nil)
		if err != nil {
			return err
		}
		item = &journalItem{read: response.Value}
		return json.Unmarshal(response.Value, item)
	})
	if statusOf(err) == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, failure(err, "reading %s of group %d", id, group)
	}
	return item, nil
}

// writeJournalItem writes a document as it was read, or creates it. It returns errJournalConflict if another writer was faster, or if the
// response to an own write was lost; then the caller reads again.
func (db *DB) writeJournalItem(ctx context.Context, group int, item *journalItem) error {
	condition := azcore.ETag(item.ETag)
	stored := *item
	stored.ETag = ""
	body, err := json.Marshal(&stored)
	if err == nil && item.read != nil && item.TTL != 1 {
		body, err = preserve(reflect.TypeFor[journalItem](), body, item.read)
	}
	if err != nil {
		return err
	}
	err = db.connection.do(ctx, func(ctx context.Context, client *client) error {
		partition := azcosmos.NewPartitionKeyString(strconv.Itoa(group))
		if condition == "" {
			_, err := client.journal.CreateItem(ctx, partition, body, nil)
			return err
		}
		_, err := client.journal.ReplaceItem(ctx, partition, item.ID, body, &azcosmos.ItemOptions{IfMatchEtag: &condition})
		return err
	})
	switch statusOf(err) {
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound:
		return errJournalConflict
	}
	if err != nil {
		return failure(err, "writing %s of group %d", item.ID, group)
	}
	return nil
}

// journalItems calls each for the documents of a group that a query returns.
func (db *DB) journalItems(ctx context.Context, group int, query string, parameters []azcosmos.QueryParameter, each func(*journalItem) error) error {
	partition := azcosmos.NewPartitionKeyString(strconv.Itoa(group))
	return db.pagesOf(ctx, func(c *client) *azcosmos.ContainerClient { return c.journal }, partition, query, parameters, func(document []byte) error {
		var item journalItem
		if err := json.Unmarshal(document, &item); err != nil {
			return fmt.Errorf("decoding a document of group %d: %w", group, err)
		}
		return each(&item)
	})
}
