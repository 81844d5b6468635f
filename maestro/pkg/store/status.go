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

// Outcome is what became of one reported status.
type Outcome int

const (
	// Applied: it is the newest now.
	Applied Outcome = iota
	// Stale: it is about another version, or older than what is known.
	Stale
	// Removed: it confirmed a deletion; the resource is gone.
	Removed
	// Unwanted: the resource's deletion had been confirmed before, and yet the agent has it.
	Unwanted
	// Unknown: no resource of this id is or was on the consumer.
	Unknown
	// Lost: the agent reports a deletion nobody asked for. The resource's delivery has been ordered again.
	Lost
)

func (o Outcome) String() string {
	return [...]string{"applied", "stale", "removed", "unwanted", "unknown", "lost"}[o]
}

// Report is a status, what became of it and, unless it is unknown, the resource it is about (without its spec).
type Report struct {
	Status   *resource.Status
	Outcome  Outcome
	Resource *resource.Resource
	Revision int64
}

// ApplyStatuses takes an agent's reports in: all of them in one transaction, in the order of their resources. Reports
// about the same resource must stand in the order in which they arrived.
func (s *Store) ApplyStatuses(ctx context.Context, consumer string, statuses []*resource.Status) ([]*Report, error) {
	// The order of locking: by resource.
	slices.SortStableFunc(statuses, func(a, b *resource.Status) int { return strings.Compare(a.ResourceID, b.ResourceID) })
	reports := make([]*Report, len(statuses))
	var batch pgx.Batch
	for i, status := range statuses {
		report := &Report{Status: status, Outcome: Stale}
		reports[i] = report
		sequence, err := strconv.ParseInt(status.Sequence, 10, 64)
		if err != nil {
			return nil, resource.Errorf(maestroapi.ReasonMalformed, "sequence id %q of resource %s is no integer", status.Sequence, status.ResourceID)
		}
		if status.Deleted {
			queueRemoval(&batch, report, consumer, sequence)
		} else {
			queueUpdate(&batch, report, consumer, sequence)
		}
	}
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("take in %d statuses of consumer %s: %w", len(statuses), consumer, err)
	}
	var rest []*Report
	for _, report := range reports {
		if report.Resource == nil {
			rest = append(rest, report)
		}
	}
	return reports, s.explain(ctx, consumer, rest)
}

// queueUpdate writes a status if it is about the newest version and newer than the known one: of a later run of the
// agent, or of a later sequence in the same run. It confirms the delivery of that version.
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

// queueRemoval ends a resource whose deletion was asked for, and leaves its tombstone. A deletion nobody asked for is
// answered by delivering the resource again.
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
	batch.Queue(`insert into deliveries (resource_id, consumer)
		select id, consumer from resources where id = $1 and consumer = $2 and version = $3 and deleted_at is null for key share
		-- An agent that goes on denying what it is sent gets it with the usual growing pauses.
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

// explain finds out why reports changed nothing.
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

// Position is how far a reader of statuses has come.
type Position string

// Since lists the statuses and confirmed deletions written since the position, without specs, and the position behind
// them. It never skips one whose transaction committed late, and may repeat some. An empty position means now.
func (s *Store) Since(ctx context.Context, from Position, limit int) (changed []*Report, next Position, err error) {
	var horizon string
	if err := s.pool.QueryRow(ctx, `select pg_snapshot_xmin(pg_current_snapshot())::text`).Scan(&horizon); err != nil {
		return nil, from, fmt.Errorf("read the status horizon: %w", err)
	}
	if from == "" {
		return nil, Position(horizon), nil
	}
	rows, err := s.pool.Query(ctx, `select `+resourceColumns+`, r.status_revision, r.status_xid::text from resources r
		where r.status_xid >= $1::text::xid8 and r.status_xid < $2::text::xid8 order by r.status_xid limit $3`, string(from), horizon, limit)
	if err != nil {
		return nil, from, fmt.Errorf("read new statuses: %w", err)
	}
	next = Position(horizon)
	var last string
	for rows.Next() {
		var revision int64
		r, err := row(func(dest ...any) error { return rows.Scan(append(dest, &revision, &last)...) }, false)
		if err != nil {
			rows.Close()
			return nil, from, fmt.Errorf("read new statuses: %w", err)
		}
		changed = append(changed, &Report{Status: r.Status, Outcome: Applied, Resource: r, Revision: revision})
	}
	if err := rows.Err(); err != nil {
		return nil, from, fmt.Errorf("read new statuses: %w", err)
	}
	// A full page goes on at its last transaction, which may have more rows than the page held; one transaction that
	// fills a page by itself is stepped over only by a larger page, so pages are much larger than batches of statuses.
	if len(changed) == limit {
		next = Position(last)
	}
	dead, err := s.tombstones(ctx, `where t.status_xid >= $1::text::xid8 and t.status_xid < $2::text::xid8`, string(from), string(next))
	if err != nil {
		return nil, from, err
	}
	for _, r := range dead {
		changed = append(changed, &Report{Status: r.Status, Outcome: Removed, Resource: r})
	}
	return changed, next, nil
}
