package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

const leftoverColumns = "work_id::text, work, shard, cluster_uid::text, step, force, release_finalizers, attempts, gone_time"

// queueDeletion queues the changes of the row by which deletions are found by time, and the leftovers of forced steps. It
// reports whether a stuck step ended or was forced.
func queueDeletion(batch *pgx.Batch, now time.Time, uid string, old, aggregate *fleet.ClusterAggregate) (unblocked bool) {
	before, after := old.DeletionJob(), aggregate.DeletionJob()
	switch {
	case before.Due.Equal(after.Due) && slices.Equal(before.Stuck, after.Stuck):
	case after.Due.IsZero() && len(after.Stuck) == 0:
		batch.Queue("DELETE FROM deletions WHERE cluster_uid = $1", uid)
	default:
		batch.Queue(`INSERT INTO deletions (cluster_uid, due_time, stuck) VALUES ($1, $2, $3)
			ON CONFLICT (cluster_uid) DO UPDATE SET due_time = $2, stuck = $3`, uid, nullTime(after.Due), notNil(after.Stuck))
	}
	for _, l := range aggregate.Leftovers {
		batch.Queue(`INSERT INTO deletion_leftovers (work_id, work, shard, cluster_uid, step, force, force_time, release_finalizers, due_time)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $7) ON CONFLICT (work_id) DO NOTHING`,
			l.WorkID, l.Work, l.Shard, l.ClusterUID, l.Step, encode(l.Force), now, notNil(l.ReleaseFinalizers))
	}
	return len(after.Stuck) < len(before.Stuck) || len(aggregate.Leftovers) > 0
}

// notNil returns a list that is not stored as NULL.
func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// DeletionsDue returns the clusters with a step of a deletion that became stuck since their last change, and the time at
// which the next step becomes stuck; zero if none does.
func (s *Store) DeletionsDue(ctx context.Context, limit int) (clusterUIDs []string, next time.Time, err error) {
	now := s.Now()
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue("SELECT cluster_uid::text FROM deletions WHERE due_time <= $1 ORDER BY due_time LIMIT $2", now, limit).
			Query(func(rows pgx.Rows) (err error) {
				clusterUIDs, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
		batch.Queue("SELECT min(due_time) FROM deletions WHERE due_time > $1", now).QueryRow(func(row pgx.Row) error {
			var first *time.Time
			err := row.Scan(&first)
			next = notNull(first)
			return err
		})
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("looking for stuck deletions: %w", err)
	}
	return clusterUIDs, next, nil
}

// OpenDeletions returns a page of the clusters with a running or stuck step of a deletion, in order of UID after a given one;
// an empty UID begins.
func (s *Store) OpenDeletions(ctx context.Context, after string, limit int) ([]string, error) {
	rows, err := s.pool.Query(ctx, "SELECT cluster_uid::text FROM deletions WHERE $1::uuid IS NULL OR cluster_uid > $1::uuid ORDER BY cluster_uid LIMIT $2", null(after), limit)
	if err != nil {
		return nil, fmt.Errorf("listing deletions: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// StuckSteps returns the number of stuck steps by kind, and the number of leftovers that are not gone.
func (s *Store) StuckSteps(ctx context.Context) (steps map[string]int, leftovers int, err error) {
	steps = map[string]int{}
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue("SELECT kind, count(*) FROM deletions, unnest(stuck) AS kind WHERE stuck <> '{}' GROUP BY kind").Query(func(rows pgx.Rows) error {
			var kind string
			var count int
			_, err := pgx.ForEachRow(rows, []any{&kind, &count}, func() error { steps[kind] = count; return nil })
			return err
		})
		batch.Queue("SELECT count(*) FROM deletion_leftovers WHERE due_time IS NOT NULL").QueryRow(func(row pgx.Row) error { return row.Scan(&leftovers) })
	})
	if err != nil {
		return nil, 0, fmt.Errorf("counting stuck steps: %w", err)
	}
	return steps, leftovers, nil
}

// AcquireDueLeftovers returns the leftovers whose deletion must be requested now. They are due again after a time that
// starts at first and grows with the attempts up to last.
func (s *Store) AcquireDueLeftovers(ctx context.Context, limit int, first, last time.Duration) ([]*fleet.Leftover, error) {
	now := s.Now()
	rows, err := s.pool.Query(ctx, `UPDATE deletion_leftovers SET attempts = attempts + 1,
			due_time = $1::timestamptz + least($3::interval * power(2, least(attempts, 20)), $4::interval)
		WHERE work_id IN (SELECT work_id FROM deletion_leftovers WHERE due_time <= $1 ORDER BY due_time LIMIT $2 FOR UPDATE SKIP LOCKED)
		RETURNING `+leftoverColumns, now, limit, first, last)
	if err != nil {
		return nil, fmt.Errorf("taking leftovers: %w", err)
	}
	return pgx.CollectRows(rows, scanLeftover)
}

// Leftovers returns the leftovers of works, by work ID. It omits unknown works.
func (s *Store) Leftovers(ctx context.Context, workIDs []string) (map[string]*fleet.Leftover, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+leftoverColumns+" FROM deletion_leftovers WHERE work_id = ANY ($1)", workIDs)
	if err != nil {
		return nil, fmt.Errorf("reading leftovers: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanLeftover)
	if err != nil {
		return nil, fmt.Errorf("reading leftovers: %w", err)
	}
	found := map[string]*fleet.Leftover{}
	for _, l := range list {
		found[l.WorkID] = l
	}
	return found, nil
}

// OpenLeftovers returns the work IDs of all leftovers that are not gone.
func (s *Store) OpenLeftovers(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, "SELECT work_id::text FROM deletion_leftovers WHERE due_time IS NOT NULL")
	if err != nil {
		return nil, fmt.Errorf("listing leftovers: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// MarkLeftoverGone stores that the deletion of a leftover was confirmed.
func (s *Store) MarkLeftoverGone(ctx context.Context, workID string) error {
	_, err := s.pool.Exec(ctx, "UPDATE deletion_leftovers SET gone_time = $2, due_time = NULL WHERE work_id = $1 AND gone_time IS NULL", workID, s.Now())
	if err != nil {
		return fmt.Errorf("noting that a leftover is gone: %w", err)
	}
	return nil
}

// ListLeftovers returns a page of leftovers in order of work ID. It includes those that are gone only on request.
func (s *Store) ListLeftovers(ctx context.Context, clusterUID, after string, gone bool, limit int) ([]*fleet.Leftover, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+leftoverColumns+` FROM deletion_leftovers
		WHERE ($1::uuid IS NULL OR cluster_uid = $1) AND ($2::uuid IS NULL OR work_id > $2) AND ($3 OR gone_time IS NULL) ORDER BY work_id LIMIT $4`,
		null(clusterUID), null(after), gone, limit)
	if err != nil {
		return nil, fmt.Errorf("listing leftovers: %w", err)
	}
	return pgx.CollectRows(rows, scanLeftover)
}

func scanLeftover(row pgx.CollectableRow) (*fleet.Leftover, error) {
	l := &fleet.Leftover{Force: &csv1.DeletionForce{}}
	var force []byte
	var gone *time.Time
	if err := row.Scan(&l.WorkID, &l.Work, &l.Shard, &l.ClusterUID, &l.Step, &force, &l.ReleaseFinalizers, &l.Attempts, &gone); err != nil {
		return nil, err
	}
	l.GoneTime = notNull(gone)
	if err := proto.Unmarshal(force, l.Force); err != nil {
		return nil, fmt.Errorf("decoding the force of leftover %s: %w", l.WorkID, err)
	}
	return l, nil
}
