package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// WorksByID returns the works with some IDs in no particular order. It omits unknown ones.
func (s *Store) WorksByID(ctx context.Context, ids []string) ([]*fleet.Work, error) {
	rows, err := s.pool.Query(ctx, "SELECT "+workColumns+" FROM works WHERE id = ANY ($1::uuid[])", ids)
	if err != nil {
		return nil, fmt.Errorf("reading works: %w", err)
	}
	return pgx.CollectRows(rows, scanWork)
}

// WorkInUse reports whether an ID belongs to a work or to a leftover that is not gone.
func (s *Store) WorkInUse(ctx context.Context, id string) (used bool, err error) {
	err = s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM works WHERE id = $1) OR EXISTS (SELECT 1 FROM deletion_leftovers WHERE work_id = $1 AND due_time IS NOT NULL)", id).Scan(&used)
	if err != nil {
		return false, fmt.Errorf("checking whether work %s is in use: %w", id, err)
	}
	return used, nil
}

// removedKept is the time beyond that of tombstones for which removed works are recorded. A management cluster may be
// unreachable for long, and a row is small.
const removedKept = 83 * 24 * time.Hour

// queueRemoved records that a work was removed.
func queueRemoved(batch *pgx.Batch, w *fleet.Work, now time.Time) {
	batch.Queue("INSERT INTO removed_works (id, cluster_uid, time) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET time = $3", w.ID, w.ClusterUID, now)
}

// RemovedWorks returns which of some IDs belong to removed works. An ID that is neither a work nor a removed work may
// belong to a work that the database lost.
func (s *Store) RemovedWorks(ctx context.Context, ids []string) (map[string]bool, error) {
	rows, err := s.pool.Query(ctx, "SELECT id::text FROM removed_works WHERE id = ANY ($1)", ids)
	if err != nil {
		return nil, fmt.Errorf("reading which works were removed: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("reading which works were removed: %w", err)
	}
	removed := make(map[string]bool, len(list))
	for _, id := range list {
		removed[id] = true
	}
	return removed, nil
}

// OfDeletedCluster reports whether a bundle has no work, and its cluster is being deleted or is a tombstone. Such a cluster gets no other
// works, so the database lost the work of the bundle.
func (s *Store) OfDeletedCluster(ctx context.Context, bundleID, clusterID string) (deleted bool, err error) {
	err = s.pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM works WHERE id = $1) AND EXISTS (SELECT FROM cluster_identifiers JOIN clusters ON uid = cluster_uid
		WHERE cluster_id = $2 AND delete_time IS NOT NULL)`, bundleID, clusterID).Scan(&deleted)
	if err != nil {
		return false, fmt.Errorf("reading whether a cluster is deleted: %w", err)
	}
	return deleted, nil
}
