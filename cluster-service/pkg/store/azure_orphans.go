package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxAzureOrphans is the maximum number of stored orphans of a region.
const maxAzureOrphans = 10_000

// AzureOrphan is a resource in Azure that belongs to no cluster.
type AzureOrphan struct {
	// UID identifies the row. SaveAzureOrphans assigns it.
	UID, Kind, AzureID string
	// ClusterUID and ClusterResourceID are what the resource names as its cluster; empty if it names none.
	ClusterUID, ClusterResourceID string
	// Evidence states why the resource is believed to be a cluster's. Proof states why its cluster is known to be deleted; it is empty
	// without a proof.
	Evidence, Proof string
	// FirstTime and LastTime are the times of the first and the last search that found it.
	FirstTime, LastTime time.Time
}

// AcquireAzureSearch acquires the search of a scope that is due, until the end of a lease. It returns "" if none is due.
func (s *Store) AcquireAzureSearch(ctx context.Context, lease time.Duration) (scope string, err error) {
	now := s.Now()
	err = s.pool.QueryRow(ctx, `UPDATE azure_searches SET due_time = $2 WHERE scope =
		(SELECT scope FROM azure_searches WHERE due_time <= $1 ORDER BY due_time LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING scope`,
		now, now.Add(lease)).Scan(&scope)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("acquiring a search for orphans in Azure: %w", err)
	}
	return scope, nil
}

// ClusterIncarnation identifies a cluster or its tombstone.
type ClusterIncarnation struct {
	UID, ResourceID string
	// ID is the cluster ID; empty before a cluster has one.
	ID string
	// GoneTime is the end of the cluster's deletion; zero before that.
	GoneTime time.Time
}

// ClusterIncarnations returns the clusters and the tombstones with one of the UIDs or cluster IDs, and the clusters with one of the
// resource IDs.
func (s *Store) ClusterIncarnations(ctx context.Context, uids, clusterIDs, resourceIDs []string) ([]ClusterIncarnation, error) {
	keys := make([]string, len(resourceIDs))
	for i, id := range resourceIDs {
		keys[i] = strings.ToLower(id)
	}
	rows, err := s.pool.Query(ctx, `SELECT uid::text, resource_id, gone_time, coalesce((SELECT cluster_id FROM cluster_identifiers WHERE cluster_uid = uid), '')
		FROM clusters WHERE uid = ANY ($1) OR uid = ANY (ARRAY(SELECT cluster_uid FROM cluster_identifiers WHERE cluster_id = ANY ($2)))
			OR gone_time IS NULL AND resource_key = ANY ($3)`, uids, clusterIDs, keys)
	if err != nil {
		return nil, fmt.Errorf("reading the clusters of Azure resources: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ClusterIncarnation, err error) {
		var gone *time.Time
		err = row.Scan(&c.UID, &c.ResourceID, &gone, &c.ID)
		c.GoneTime = notNull(gone)
		return c, err
	})
}

// SaveAzureOrphans stores orphans that a search of a scope found now. A stored orphan keeps its proof while it names the same cluster,
// although the tombstone of that cluster is removed. SaveAzureOrphans returns the number of orphans that it did not store, because the
// region has too many.
func (s *Store) SaveAzureOrphans(ctx context.Context, scope string, orphans []AzureOrphan) (omitted int, err error) {
	if len(orphans) == 0 {
		return 0, nil
	}
	columns := make([][]string, 7)
	for _, o := range orphans {
		for i, value := range []string{o.Kind, o.AzureID, strings.ToLower(o.AzureID), o.ClusterUID, o.ClusterResourceID, o.Evidence, o.Proof} {
			columns[i] = append(columns[i], value)
		}
	}
	tag, err := s.pool.Exec(ctx, `INSERT INTO azure_orphans AS stored
			(scope, first_time, last_time, kind, azure_id, azure_key, cluster_uid, cluster_resource_id, evidence, proof)
		SELECT $1, $2, $2, found.* FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
			AS found (kind, azure_id, azure_key, cluster_uid, cluster_resource_id, evidence, proof)
			WHERE (SELECT count(*) FROM azure_orphans) < $3 OR EXISTS (SELECT FROM azure_orphans known WHERE known.azure_key = found.azure_key)
		ON CONFLICT (azure_key) DO UPDATE SET scope = excluded.scope, last_time = excluded.last_time, cluster_uid = excluded.cluster_uid,
			cluster_resource_id = excluded.cluster_resource_id, evidence = excluded.evidence,
			proof = CASE WHEN excluded.proof = '' AND (stored.cluster_uid, stored.cluster_resource_id) = (excluded.cluster_uid, excluded.cluster_resource_id)
				THEN stored.proof ELSE excluded.proof END`,
		scope, s.Now(), maxAzureOrphans, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6])
	if err != nil {
		return 0, fmt.Errorf("storing orphans in Azure: %w", err)
	}
	return len(orphans) - int(tag.RowsAffected()), nil
}

// CompleteAzureSearch ends a search of a scope that read all its resources. It deletes the orphans that the search, which began at a
// time, did not find, and makes the next search due after a pause.
func (s *Store) CompleteAzureSearch(ctx context.Context, scope string, begin time.Time, pause time.Duration) error {
	now := s.Now()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("DELETE FROM azure_orphans WHERE scope = $1 AND last_time < $2", scope, begin)
		batch.Queue("UPDATE azure_searches SET due_time = $2, complete_time = $3 WHERE scope = $1", scope, now.Add(pause), now)
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("ending a search for orphans in Azure: %w", err)
	}
	return nil
}

// ForgetAzureSubscription deletes the scope of a subscription and its orphans, unless a cluster or a tombstone is in the subscription.
func (s *Store) ForgetAzureSubscription(ctx context.Context, subscription string) (forgotten bool, err error) {
	err = s.pool.QueryRow(ctx, `WITH scope AS (DELETE FROM azure_searches WHERE scope = $1
			AND NOT EXISTS (SELECT FROM clusters WHERE split_part(resource_key, '/', 3) = $1) RETURNING scope),
		orphans AS (DELETE FROM azure_orphans WHERE scope IN (SELECT scope FROM scope))
		SELECT EXISTS (SELECT FROM scope)`, subscription).Scan(&forgotten)
	if err != nil {
		return false, fmt.Errorf("removing a subscription from the searches for orphans: %w", err)
	}
	return forgotten, nil
}

// CountAzureOrphans returns the number of orphans by kind that searches found for at least a grace period, and the number of scopes
// without a complete search since a time.
func (s *Store) CountAzureOrphans(ctx context.Context, grace time.Duration, since time.Time) (byKind map[string]int, overdue int, err error) {
	byKind = map[string]int{}
	err = s.snapshot(ctx, func(batch *pgx.Batch) {
		batch.Queue("SELECT kind, count(*) FROM azure_orphans WHERE last_time >= first_time + $1::interval GROUP BY kind", grace).Query(func(rows pgx.Rows) error {
			var kind string
			var count int
			_, err := pgx.ForEachRow(rows, []any{&kind, &count}, func() error { byKind[kind] = count; return nil })
			return err
		})
		batch.Queue("SELECT count(*) FROM azure_searches WHERE complete_time < $1", since).QueryRow(func(row pgx.Row) error { return row.Scan(&overdue) })
	})
	if err != nil {
		return nil, 0, fmt.Errorf("counting orphans in Azure: %w", err)
	}
	return byKind, overdue, nil
}

// ListAzureOrphans returns a page of the orphans that searches found for at least a grace period, in order of UID.
func (s *Store) ListAzureOrphans(ctx context.Context, after string, grace time.Duration, limit int) ([]AzureOrphan, error) {
	rows, err := s.pool.Query(ctx, selectAzureOrphans+"AND ($2::uuid IS NULL OR uid > $2) ORDER BY uid LIMIT $3", grace, null(after), limit)
	if err != nil {
		return nil, fmt.Errorf("listing orphans in Azure: %w", err)
	}
	return pgx.CollectRows(rows, scanAzureOrphan)
}

// FindAzureOrphan returns an orphan that searches found for at least a grace period, before it is deleted in Azure. It returns ErrUnknown if there is none, and
// ErrCallRepeated if the call of the context has deleted it.
func (s *Store) FindAzureOrphan(ctx context.Context, uid string, grace time.Duration) (*AzureOrphan, error) {
	if err := s.checkCall(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, selectAzureOrphans+"AND uid = $2", grace, uid)
	if err != nil {
		return nil, fmt.Errorf("reading an orphan in Azure: %w", err)
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanAzureOrphan)
	return unknown(&o, err)
}

// EndAzureOrphanDeletion records that Azure accepted the deletion of an orphan. It removes the orphan from the list if Azure does not have it any more; otherwise
// the next search does.
func (s *Store) EndAzureOrphanDeletion(ctx context.Context, uid string, gone bool) error {
	var done func()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if done, err = s.noteCall(ctx, tx); err != nil || !gone {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM azure_orphans WHERE uid = $1", uid)
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the deletion of an orphan in Azure: %w", err)
	}
	done()
	return nil
}

const selectAzureOrphans = `SELECT uid::text, kind, azure_id, cluster_uid, cluster_resource_id, evidence, proof, first_time, last_time FROM azure_orphans
	WHERE last_time >= first_time + $1::interval `

func scanAzureOrphan(row pgx.CollectableRow) (o AzureOrphan, err error) {
	err = row.Scan(&o.UID, &o.Kind, &o.AzureID, &o.ClusterUID, &o.ClusterResourceID, &o.Evidence, &o.Proof, &o.FirstTime, &o.LastTime)
	return o, err
}
