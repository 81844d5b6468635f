package app

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/observer"
)

// record returns the record of a cluster; nil if there is none.
func (r *region) record(i int) (*database.HealthRecord, error) {
	record, report, err := r.db.HealthRecord(r.t.Context(), int(partition.Of(uidOf(i), observer.Groups)), uidOf(i))
	if err == nil && record != nil && !report.Current(time.Now()) {
		err = fmt.Errorf("the report of the group is %+v", report)
	}
	return record, err
}

// await waits until the state of a cluster's API is recorded, with its concern if it has one.
func (r *region) await(i int, api, concern string) *database.HealthRecord {
	r.t.Helper()
	var found *database.HealthRecord
	eventually.Soon(r.t, fmt.Sprintf("cluster %d is recorded as %s %s", i, api, concern), func() error {
		record, err := r.record(i)
		if err != nil || record == nil {
			return errors.Join(err, errors.New("there is no record"))
		}
		got := ""
		for _, c := range record.Health.Concerns {
			got += c.Kind
		}
		if found = record; record.Health.API != api || got != concern {
			return fmt.Errorf("the record is %+v", record.Health)
		}
		return nil
	})

	return found
}

// TestJournalSurvivesReplicas breaks the etcd of a cluster, replaces the replica meanwhile, repairs the etcd, and deletes another
// cluster while no replica runs. The next owner continues with what was recorded, and nothing is left of the deleted cluster.
func TestJournalSurvivesReplicas(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	for i := range 3 {
		r.create(i)
	}
	first := r.start("monitor-0")
	for i := range 3 {
		r.await(i, adminv1.HealthAvailable, "")
	}
	r.farm.Break(etcdAway, uidOf(0))
	broken := r.await(0, adminv1.HealthUnavailable, "etcd_fails")
	first.stop()
	r.delete(1)

	second := r.start("monitor-1")
	eventually.Soon(t, "the record of the deleted cluster is removed", func() error {
		if record, err := r.record(1); err != nil || record != nil {
			return fmt.Errorf("got %+v, %w", record, err)
		}
		return nil
	})

	r.sees(1, second)
	if now := r.await(0, adminv1.HealthUnavailable, "etcd_fails"); !now.Health.Since.Equal(broken.Health.Since) || len(now.Entries) != len(broken.Entries) {
		t.Errorf("a new owner records another outage: %+v after %+v", now, broken)
	}
	r.farm.Break("", uidOf(0))
	repaired := r.await(0, adminv1.HealthAvailable, "")
	var events []string
	for _, e := range repaired.Entries {
		events = append(events, e.Event+" "+e.To+e.Kind)
	}
	want := []string{"api available", "api unavailable", "concern_began etcd_fails", "api available", "concern_ended etcd_fails"}
	if !slices.Equal(events, want) {
		t.Errorf("the journal has %q, want %q", events, want)
	}
	if last := repaired.Entries[len(want)-1]; !last.Since.Equal(broken.Entries[2].Since) {
		t.Errorf("the end of the concern is %+v, which began as %+v", last, broken.Entries[2])
	}
}
