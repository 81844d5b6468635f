package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// Outcome is the result of processing a reported status.
type Outcome int

const (
	// Applied means that the status is now the newest.
	Applied Outcome = iota
	// Stale means that the status is of another version or older than the stored one.
	Stale
	// Removed means that the status confirmed a deletion and the resource was removed.
	Removed
	// Unwanted means that the agent has a resource whose deletion it had confirmed.
	Unwanted
	// Unknown means that the database has no record of the resource on this consumer.
	Unknown
	// Lost means that the agent reported a deletion that was not requested. The resource was ordered to be delivered again.
	Lost
)

func (o Outcome) String() string {
	return [...]string{"applied", "stale", "removed", "unwanted", "unknown", "lost"}[o]
}

// Report is a status with its outcome and, unless that is Unknown, the resource without its spec.
type Report struct {
	Status   *resource.Status
	Outcome  Outcome
	Resource *resource.Resource
	Revision int64
}

// ApplyStatuses stores the statuses that an agent reported, in one transaction. Statuses of the same resource must be in the
// order of their arrival. It sorts statuses by resource ID.
func (s *Store) ApplyStatuses(ctx context.Context, consumer string, statuses []*resource.Status) ([]*Report, error) {
	// Resources are locked in the order of their IDs.
	slices.SortStableFunc(statuses, func(a, b *resource.Status) int { return strings.Compare(a.ResourceID, b.ResourceID) })
	reports := make([]*Report, len(statuses))
	var batch pgx.Batch
	for i, status := range statuses {
		report := &Report{Status: status, Outcome: Stale}
		reports[i] = report
		sequence, err := strconv.ParseInt(status.Sequence, 10, 64)
		if err != nil {
			return nil, resource.Errorf(maestroapi.ReasonMalformed, "sequence ID %q of resource %s is not an integer", status.Sequence, status.ResourceID)
		}
		if status.Deleted {
			queueRemoval(&batch, report, consumer, sequence)
		} else {
			queueUpdate(&batch, report, consumer, sequence)
		}
	}
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("storing %d statuses of consumer %s: %w", len(statuses), consumer, err)
	}
	var rest []*Report
	for _, report := range reports {
		if report.Resource == nil {
			rest = append(rest, report)
		}
	}
	return reports, s.explain(ctx, consumer, rest)
}

// queueUpdate stores a status if it is of the newest version and newer than the stored one: of a later run of the agent, or
// with a higher sequence ID of the same run. It confirms the delivery of that version.
func queueUpdate(batch *pgx.Batch, report *Report, consumer string, sequence int64) {
	st := report.Status
	batch.Queue(`
		with updated as (
			update resources r set status_version = $3, status_agent = $4, status_sequence = $5, status_hash = $6, status_body = $7,
				status_epoch = c.agent_epoch, status_revision = nextval('status_revision'), status_xid = pg_current_xact_id()
			from consumers c
			where c.name = r.consumer and r.id = $1 and r.consumer = $2 and r.version = $3
				and (r.status_epoch is null or r.status_epoch < c.agent_epoch or r.status_sequence < $5 or r.status_version < $3)
			returning r.*),
		confirmed as (
			delete from deliveries d using updated u where d.resource_id = u.id and u.deleted_at is null)
		select `+resourceColumns+`, r.status_revision from updated r`,
		st.ResourceID, consumer, st.Version, st.Agent, sequence, st.Hash, []byte(st.Body),
	).Query(func(rows pgx.Rows) error { return collectReport(rows, report, Applied) })
}

// queueRemoval replaces a resource that is being deleted with a tombstone. A resource that is not being deleted is delivered
// again.
func queueRemoval(batch *pgx.Batch, report *Report, consumer string, sequence int64) {
	st := report.Status
	batch.Queue(`
		with removed as (
			delete from resources r where r.id = $1 and r.consumer = $2 and r.version = $3 and r.deleted_at is not null returning r.*),
		tomb as (
			insert into tombstones (resource_id, source, consumer, version, metadata, tracing, deleted_at, status_agent, status_sequence, status_body)
			select id, source, consumer, version, metadata, tracing, deleted_at, $4, $5, $6 from removed
			on conflict (resource_id) do nothing returning status_revision)
		select `+resourceColumns+`, (select status_revision from tomb) from removed r`,
		st.ResourceID, consumer, st.Version, st.Agent, sequence, []byte(st.Body),
	).Query(func(rows pgx.Rows) error {
		if err := collectReport(rows, report, Removed); err != nil || report.Resource == nil {
			return err
		}
		report.Resource.Status = st
		return nil
	})
	// The lock is the one that an update of the resource takes. The weaker "for key share" would let CompareHeld, which holds all
	// resources, meet deliveries that it has not locked.
	batch.Queue(`insert into deliveries (resource_id, consumer)
		select id, consumer from resources where id = $1 and consumer = $2 and version = $3 and deleted_at is null for no key update
		-- If the agent keeps reporting the deletion, the delivery is repeated with the usual growing pauses.
		on conflict (resource_id) do nothing`,
		st.ResourceID, consumer, st.Version).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() > 0 {
			report.Outcome = Lost
		}
		return nil
	})
}

func collectReport(rows pgx.Rows, report *Report, outcome Outcome) error {
	defer rows.Close()
	for rows.Next() {
		var revision *int64
		r, err := row(func(dest ...any) error { return rows.Scan(append(dest, &revision)...) }, false)
		if err != nil {
			return err
		}
		report.Outcome, report.Resource = outcome, r
		if revision != nil {
			report.Revision = *revision
		}
	}
	return rows.Err()
}

// explain sets the outcome of reports that changed nothing.
func (s *Store) explain(ctx context.Context, consumer string, reports []*Report) error {
	if len(reports) == 0 {
		return nil
	}
	ids := make([]string, len(reports))
	for i, report := range reports {
		ids[i] = report.Status.ResourceID
	}
	found, err := s.Load(ctx, ids)
	if err != nil {
		return err
	}
	byID := map[string]*resource.Resource{}
	for _, r := range found {
		if r.Consumer == consumer {
			byID[r.ID] = r
		}
	}
	for _, report := range reports {
		r := byID[report.Status.ResourceID]
		report.Resource = r
		switch {
		case report.Outcome == Lost:
		case r == nil:
			report.Outcome = Unknown
		case r.Status != nil && r.Status.Deleted && !report.Status.Deleted:
			report.Outcome = Unwanted
		}
	}
	return nil
}

// Position is the progress of a reader of statuses.
type Position string

// Since returns the statuses and confirmed deletions since a position, without specs, and the next position. It never skips one
// whose transaction committed late, and may repeat some. An empty position means now.
func (s *Store) Since(ctx context.Context, from Position, limit int) (changed []*Report, next Position, err error) {
	var horizon string
	if err := s.pool.QueryRow(ctx, `select pg_snapshot_xmin(pg_current_snapshot())::text`).Scan(&horizon); err != nil {
		return nil, from, fmt.Errorf("reading the status horizon: %w", err)
	}
	if from == "" || from == Position(horizon) {
		return nil, Position(horizon), nil
	}
	rows, err := s.pool.Query(ctx, `select `+resourceColumns+`, r.status_revision, r.status_xid::text from resources r
		where r.status_xid >= $1::text::xid8 and r.status_xid < $2::text::xid8 order by r.status_xid limit $3`, string(from), horizon, limit)
	if err != nil {
		return nil, from, fmt.Errorf("reading new statuses: %w", err)
	}
	next = Position(horizon)
	var last string
	for rows.Next() {
		var revision int64
		r, err := row(func(dest ...any) error { return rows.Scan(append(dest, &revision, &last)...) }, false)
		if err != nil {
			rows.Close()
			return nil, from, fmt.Errorf("reading new statuses: %w", err)
		}
		changed = append(changed, &Report{Status: r.Status, Outcome: Applied, Resource: r, Revision: revision})
	}
	if err := rows.Err(); err != nil {
		return nil, from, fmt.Errorf("reading new statuses: %w", err)
	}
	// After a full page, reading continues at its last transaction, which may have more rows. A transaction that fills a whole
	// page would stop the progress, so pages are much larger than transactions.
	if len(changed) == limit {
		next = Position(last)
	}
	deleted, err := s.tombstones(ctx, `where t.status_xid >= $1::text::xid8 and t.status_xid < $2::text::xid8`, string(from), string(next))
	if err != nil {
		return nil, from, err
	}
	for _, r := range deleted {
		changed = append(changed, &Report{Status: r.Status, Outcome: Removed, Resource: r})
	}
	return changed, next, nil
}
